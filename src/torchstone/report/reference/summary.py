"""summary.txt, summary.json, summary.csv, memory.csv: every module, the totals, and what the model needs in memory."""

from collections.abc import Sequence
from typing import Any

import msgspec

from torchstone.record.base import Record
from torchstone.record.cost import CostTable
from torchstone.record.trace import Trace
from torchstone.record.value import show_value
from torchstone.report.inspect_text import tree_labels
from torchstone.report.reference.kv_cache import CacheNeeds, cache_needs
from torchstone.report.reference.memory_needs import MemoryNeeds, memory_needs
from torchstone.report.spreadsheet import write_csv
from torchstone.report.text import aligned
from torchstone.report.view.modules import ModuleRow, folded_rows, module_rows
from torchstone.report.view.overview import Totals, totals
from torchstone.report.view.specs import show_specs
from torchstone.units import show_bytes, show_count

SCHEMA = "torchstone/summary/1"


class SummaryRow(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One module; sizes are those of its first call."""

    path: str
    class_name: str = msgspec.field(name="class")
    inputs: str
    outputs: str
    parameters: int
    own_parameters: int
    parameter_bytes: int
    output_bytes: int | None  # None: an element type is not known
    kernel_size: str  # "" for a module that has none
    multiply_adds: int  # with everything inside
    own_multiply_adds: int
    unpriced_calls: int  # op calls that have no price and are in no number
    calls: int


class Summary(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The whole summary."""

    model: str
    totals: Totals
    multiply_adds: int
    unpriced: dict[str, int]
    memory: tuple[MemoryNeeds, ...]
    cache: CacheNeeds | None
    modules: tuple[SummaryRow, ...]


def summarise(trace: Trace, macs: CostTable, lengths: Sequence[int]) -> Summary:
    """The summary of a trace; `macs` is its price with a multiply-add counted as one."""
    return Summary(
        model=trace.provenance.model,
        totals=totals(trace),
        multiply_adds=macs.totals.matmul_flops,
        unpriced=macs.unpriced,
        memory=memory_needs(trace, macs, lengths),
        cache=cache_needs(trace),
        modules=tuple(_row(row, trace, macs) for row in module_rows(trace)),
    )


def _row(row: ModuleRow, trace: Trace, macs: CostTable) -> SummaryRow:
    cost = macs.modules[row.index]
    sizes = [spec.size_bytes for spec in row.outputs]
    known = [size for size in sizes if size is not None]
    return SummaryRow(
        path=row.path,
        class_name=row.class_path,
        inputs=show_specs(row.inputs),
        outputs=show_specs(row.outputs),
        parameters=row.parameters,
        own_parameters=row.own_parameters,
        parameter_bytes=row.parameter_bytes,
        output_bytes=sum(known) if len(known) == len(sizes) else None,
        kernel_size=_kernel_size(trace, row.index),
        multiply_adds=cost.matmul_flops,
        own_multiply_adds=cost.self_matmul_flops,
        unpriced_calls=cost.unpriced_calls,
        calls=row.calls,
    )


def _kernel_size(trace: Trace, index: int) -> str:
    value = next((value for name, value in trace.modules[index].attributes if name == "kernel_size"), None)
    return "" if value is None else show_value(value).strip("(),[]").replace(", ", "x")


def summary_json(summary: Summary) -> bytes:
    """The summary as one document."""
    body: dict[str, Any] = {"schema": SCHEMA} | msgspec.to_builtins(summary, str_keys=True)
    return msgspec.json.format(msgspec.json.encode(body), indent=1) + b"\n"


def summary_csv(summary: Summary) -> bytes:
    """One line per module."""
    names = [field.encode_name for field in msgspec.structs.fields(SummaryRow)]
    return write_csv(names, (msgspec.structs.astuple(row) for row in summary.modules))


def memory_csv(summary: Summary) -> bytes:
    """One line per element type and part of what the model needs; no number is one that is not known."""
    names = ("dtype", "captured", "part", "tokens", "bytes")
    rows: list[tuple[object, ...]] = []
    for need in summary.memory:
        about = (need.dtype, need.captured)
        rows.append((*about, "weights", None, need.weights_bytes))
        rows.append((*about, "buffers", None, need.buffers_bytes))
        rows.append((*about, "activation peak", None, need.activation_peak_bytes))
        rows += [(*about, "KV cache", tokens, size) for tokens, size in (need.kv_cache_bytes or {}).items()]
    return write_csv(names, rows)


def summary_text(summary: Summary, trace: Trace) -> str:
    """The table, repeated layers once, then totals and memory."""
    rows = module_rows(trace)
    shown = list(folded_rows(rows))
    header = (
        "module",
        "class",
        "input",
        "output",
        "kernel",
        "params",
        "multiply-adds",
        "params memory",
        "output memory",
    )
    lines: list[tuple[str, ...]] = [header]
    for row, label in zip(shown, tree_labels(shown, rows, fold=True), strict=True):
        lines.append(_text_line(label, row, summary.modules[row.index]))
    table = aligned(lines, right=(5, 6, 7, 8))
    return "\n\n".join((table, _totals_text(summary), _memory_text(summary), _cache_text(summary))) + "\n"


def _text_line(label: str, row: ModuleRow, found: SummaryRow) -> tuple[str, ...]:
    class_name = f"{row.repeats} x {row.class_name}" if row.repeats > 1 else row.class_name
    return (
        label,
        class_name,
        found.inputs or "-",
        found.outputs or "-",
        found.kernel_size or "-",
        show_count(found.parameters) if found.parameters else "-",
        show_count(found.multiply_adds) if found.multiply_adds else "-",
        show_bytes(found.parameter_bytes) if found.parameter_bytes else "-",
        "unknown" if found.output_bytes is None else show_bytes(found.output_bytes) if found.output_bytes else "-",
    )


def _totals_text(summary: Summary) -> str:
    counted = summary.totals
    rows = [
        ("parameters", f"{counted.parameters:,} ({counted.trainable_parameters:,} trainable)"),
        ("modules", f"{counted.modules:,} ({counted.unique_modules:,} unique)"),
        ("ops", f"{counted.ops:,} calls of {counted.distinct_ops} operators"),
        ("multiply-adds", f"{summary.multiply_adds:,} in matmuls, convolutions and attention"),
    ]
    if summary.unpriced:
        names = ", ".join(f"{op} ({calls:,} x)" for op, calls in summary.unpriced.items())
        rows.append(("no price", f"{names}: in no number above"))
    return aligned(rows, header=False)


def _memory_text(summary: Summary) -> str:
    lengths = list(next((row.kv_cache_bytes for row in summary.memory if row.kv_cache_bytes), {}))
    header = (
        "memory",
        "weights",
        "buffers",
        "activation peak",
        *(f"KV cache, {length:,} tokens" for length in lengths),
    )
    lines = [header]
    for row in summary.memory:
        cache = [(row.kv_cache_bytes or {})[length] for length in lengths]
        sizes = (row.weights_bytes, row.buffers_bytes, row.activation_peak_bytes, *cache)
        name = f"{row.dtype} (as run)" if row.captured else row.dtype
        lines.append((name, *("unknown" if size is None else show_bytes(size) for size in sizes)))
    return aligned(lines, right=range(1, len(header)))


def _cache_text(summary: Summary) -> str:
    cache = summary.cache
    if cache is None:
        return "KV cache: this run gave none back, so nothing is said about it."
    grows = f"{cache.elements_per_token:,} elements a token, read off from a cache of {cache.tokens:,} tokens"
    fixed = f", and {cache.fixed_elements:,} elements that do not grow" if cache.fixed_elements else ""
    windows = "".join(
        f", {elements:,} a token up to a window of {window:,}" for window, elements in cache.windows.items()
    )
    bounded = f"; {cache.not_known} tensors of layers with a bounded cache are not counted" if cache.not_known else ""
    return f"KV cache: {grows}{windows}{fixed}{bounded}."

"""The documents of a reference: operators, functions, tensors, hierarchy, parameters, summary; written to a folder."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from torchstone.record.base import Record
from torchstone.record.codec import write_atomically
from torchstone.record.cost import CostTable
from torchstone.record.reference import FunctionUse
from torchstone.record.trace import Trace
from torchstone.record.value import show_value
from torchstone.report.inspect_text import TreeOptions, tree_text
from torchstone.report.reference.graph_files import PAGES_FOLDER, GraphFiles, graph_files
from torchstone.report.reference.memory_needs import DEFAULT_LENGTHS, CacheNeeds, MemoryNeeds, cache_needs, memory_needs
from torchstone.report.spreadsheet import write_csv
from torchstone.report.text import aligned, tree_labels
from torchstone.report.view.modules import ModuleRow, attributes_text, folded_rows, module_rows, show_specs
from torchstone.report.view.overview import (
    NO_MODULE,
    PlaceRow,
    Totals,
    operator_rows,
    place_rows,
    totals,
    use_rows,
    variant_rows,
)
from torchstone.units import many, show_bytes, show_count

# operators.json, operators.csv, functions.csv: module types, aten ops, torch functions; counts, arguments, where.


OPERATORS_SCHEMA = "torchstone/operators/1"
_OUTSIDE = "(outside any module)"
_ROOT = "(root)"


def operators_json(trace: Trace, functions: Sequence[FunctionUse] = ()) -> bytes:
    """All operators, torch functions and module types."""
    used_in = _users(trace)
    variants: defaultdict[str, list[dict[str, object]]] = defaultdict(list)
    for row in variant_rows(trace):
        variants[row.op].append({"arguments": row.arguments, "output": row.output, "calls": row.calls})
    document = {
        "schema": OPERATORS_SCHEMA,
        "model": trace.provenance.model,
        "calls": trace.size.op,
        "operators": [
            {
                "op": row.op,
                "function": torch_function(row.op),
                "calls": row.calls,
                "dtypes": row.dtypes,
                "variants": variants[row.op],
                "modules": used_in[row.op],
            }
            for row in operator_rows(trace)
        ],
        "functions": _functions(functions),
        "module_types": _module_types(trace),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def operators_csv(trace: Trace) -> bytes:
    """One line per operator, set of shapes and arguments, and module that calls it."""
    names = ("op", "function", "calls", "module", "class", "arguments", "output")
    places: defaultdict[int, list[PlaceRow]] = defaultdict(list)
    for place in place_rows(trace):
        places[place.signature].append(place)
    rows = (
        (row.op, torch_function(row.op), place.calls, *_module(trace, place.module), row.arguments, row.output)
        for row in variant_rows(trace)
        for place in places[row.signature]
    )
    return write_csv(names, rows)


def _module(trace: Trace, module: int) -> tuple[str, str]:
    """The path and the class of a module."""
    if module == NO_MODULE:
        return _OUTSIDE, ""
    return trace.modules[module].path or _ROOT, trace.modules[module].class_name.rpartition(".")[2]


def functions_csv(functions: Sequence[FunctionUse]) -> bytes:
    """One line per torch function with one set of arguments."""
    names = ("function", "calls", "arguments", "output", "modules")
    rows = ((one.function, one.calls, one.arguments, one.output, " ".join(_named(one.modules))) for one in functions)
    return write_csv(names, rows)


def _functions(uses: Sequence[FunctionUse]) -> list[dict[str, object]]:
    found: dict[str, list[FunctionUse]] = {}
    for use in uses:
        found.setdefault(use.function, []).append(use)
    calls = {name: sum(one.calls for one in variants) for name, variants in found.items()}
    return [
        {
            "function": name,
            "calls": calls[name],
            "variants": [{"arguments": one.arguments, "output": one.output, "calls": one.calls} for one in found[name]],
            "modules": _named(dict.fromkeys(path for one in found[name] for path in one.modules)),
        }
        for name in sorted(found, key=lambda name: (-calls[name], name))
    ]


def _named(paths: Iterable[str]) -> list[str]:
    return [path or _ROOT for path in paths]


def torch_function(op: str) -> str:
    """The name under which people know an op: aten.mm.default is mm."""
    return op.split(".")[1] if op.count(".") > 1 else op


def _users(trace: Trace) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for use in use_rows(trace):
        found[use.op].append(_OUTSIDE if use.module == NO_MODULE else trace.modules[use.module].path or _ROOT)
    return found


def _module_types(trace: Trace) -> list[dict[str, object]]:
    calls = Counter(trace.call_origins.modules)
    members: defaultdict[str, list[int]] = defaultdict(list)
    for index, module in enumerate(trace.modules):
        members[module.class_name].append(index)
    return [
        {
            "class": name,
            "modules": len(found),
            "calls": sum(calls[index] for index in found),
            "attributes": sorted({attributes_text(trace, index) for index in found}),
            "paths": [trace.modules[index].path or _ROOT for index in found],
        }
        for name, found in sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


# tensors.csv, hierarchy.txt and parameters.csv: every intermediate tensor, the module tree, every parameter.


TENSOR_COLUMNS = ("tensor", "op_call", "op", "module", "shape", "dtype", "bytes", "kind")
PARAMETER_COLUMNS = ("name", "module", "kind", "shape", "dtype", "elements", "bytes", "trainable", "tied_to")


def tensors_csv(trace: Trace) -> bytes:
    """Every tensor of the run, in order of its number: what made it, where, and its shape."""
    return write_csv(TENSOR_COLUMNS, _tensor_rows(trace))


def _tensor_rows(trace: Trace) -> Iterator[tuple[object, ...]]:
    external = {one.tensor: one for one in trace.tensors.external}
    made_by: dict[int, int] = {}
    for op, outputs in enumerate(trace.ops.outputs):
        for tensor in outputs:
            made_by.setdefault(tensor, op)
    for number in range(len(trace.tensors)):
        spec = trace.tensors[number].spec
        shape = "x".join(map(str, spec.shape)) or "scalar"
        if number in external or number not in made_by:
            name, kind = (external[number].name, external[number].kind) if number in external else ("", "unknown")
            yield number, None, name, "", shape, spec.dtype, spec.size_bytes, kind
        else:
            call = trace.ops[made_by[number]]
            yield (
                number,
                call.index,
                call.op,
                trace.module_path_of(call),
                shape,
                spec.dtype,
                spec.size_bytes,
                "intermediate",
            )


def hierarchy_txt(trace: Trace) -> bytes:
    """The whole module tree with classes, shapes and calls, nothing folded."""
    text = tree_text(trace, TreeOptions(columns=("class", "inputs", "outputs", "params", "calls"), fold=False))
    return f"{text}\n".encode()


def parameters_csv(trace: Trace) -> bytes:
    """Every parameter and buffer by path; a tied one names its twin."""
    return write_csv(PARAMETER_COLUMNS, _parameter_rows(trace))


def _parameter_rows(trace: Trace) -> Iterator[tuple[object, ...]]:
    first_name: dict[int, str] = {}
    for module in trace.modules:
        own_tensors = [("parameter", own) for own in module.parameters] + [("buffer", own) for own in module.buffers]
        for kind, own in own_tensors:
            name = f"{module.path}.{own.name}" if module.path else own.name
            spec = trace.tensors[own.tensor].spec
            twin = first_name.setdefault(own.tensor, name)
            shape = "x".join(map(str, spec.shape)) or "scalar"
            tied_to = "" if twin == name else twin
            yield (name, module.path, kind, shape, spec.dtype, spec.elements, spec.size_bytes, own.trainable, tied_to)


# summary.txt, summary.json, summary.csv, memory.csv: every module, the totals, and what the model needs in memory.


SUMMARY_SCHEMA = "torchstone/summary/1"


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
    body: dict[str, object] = {"schema": SUMMARY_SCHEMA} | msgspec.to_builtins(summary, str_keys=True)
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
        ("ops", f"{many(counted.ops, 'call')} of {many(counted.distinct_ops, 'operator')}"),
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
        *(f"KV cache, {many(length, 'token')}" for length in lengths),
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
    grows = (
        f"{many(cache.elements_per_token, 'element')} a token, read off from a cache of {many(cache.tokens, 'token')}"
    )
    fixed = (
        f", and {many(cache.fixed_elements, 'element that does', 'elements that do')} not grow"
        if cache.fixed_elements
        else ""
    )
    windows = "".join(
        f", {elements:,} a token up to a window of {window:,}" for window, elements in cache.windows.items()
    )
    bounded = (
        f"; not counted: {many(cache.not_known, 'tensor')} of layers with a bounded cache" if cache.not_known else ""
    )
    return f"KV cache: {grows}{windows}{fixed}{bounded}."


# --- Writing all documents of a reference that follow from a trace and its costs ---


_PAGE_FILE = re.compile(r"graph(_ops)?_\d+\.svg")


def write_documents(
    folder: Path,
    trace: Trace,
    macs: CostTable,
    lengths: Sequence[int] = DEFAULT_LENGTHS,
    functions: Sequence[FunctionUse] = (),
) -> tuple[GraphFiles, ...]:
    """Write summary, operators, functions, shapes, hierarchy, parameters and graphs; gives the graphs."""
    summary = summarise(trace, macs, lengths)
    graphs = graph_files(trace)
    files = {
        "summary.txt": summary_text(summary, trace).encode(),
        "summary.json": summary_json(summary),
        "summary.csv": summary_csv(summary),
        "memory.csv": memory_csv(summary),
        "operators.json": operators_json(trace, functions),
        "operators.csv": operators_csv(trace),
        "functions.csv": functions_csv(functions),
        "tensors.csv": tensors_csv(trace),
        "hierarchy.txt": hierarchy_txt(trace),
        "parameters.csv": parameters_csv(trace),
    }
    for one in graphs:
        files |= one.files
    for path in (folder / PAGES_FOLDER).glob("graph*.svg"):  # pages of an earlier, larger graph
        if _PAGE_FILE.fullmatch(path.name) and f"{PAGES_FOLDER}/{path.name}" not in files:
            path.unlink()
    for name, content in files.items():
        write_atomically(folder / name, content)
    return graphs

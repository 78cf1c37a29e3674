"""Terminal output of `torchstone inspect`: tree, totals, operators, unique modules, failure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from torchstone.record.base import Record
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace
from torchstone.record.unique import unique_modules
from torchstone.report.text import Paint, aligned, paint_label, plain, tree_labels
from torchstone.report.view.modules import ModuleRow, folded_rows, module_rows
from torchstone.report.view.overview import operator_rows, totals, use_rows, variant_rows
from torchstone.units import many, show_bytes, show_count

COLUMNS = ("class", "params", "inputs", "outputs", "calls", "bytes")
_RIGHT = ("params", "calls", "bytes")
_MOST_SHOWN = 3


class TreeOptions(Record, frozen=True, kw_only=True):
    """Which part of the tree is shown, and its columns."""

    columns: tuple[str, ...] = COLUMNS[:5]
    depth: int | None = None
    text: str = ""  # only rows whose path or class contains it
    fold: bool = True


def tree_text(trace: Trace, options: TreeOptions, paint: Paint = plain) -> str:
    """The module tree, repeated layers once."""
    rows = module_rows(trace)
    shown = list(folded_rows(rows)) if options.fold else list(rows)
    shown = [row for row in shown if options.depth is None or row.depth <= options.depth]
    if options.text:
        wanted = options.text.lower()
        matching = [row for row in shown if wanted in row.path.lower() or wanted in row.class_name.lower()]
        labels = [row.path or "(root)" for row in matching]
        count = f"{len(matching)} of {many(len(shown), 'row contains', 'rows contain')} {options.text!r}"
        return f"{_table(matching, labels, options, paint)}\n{count}"
    return _table(shown, tree_labels(shown, rows, fold=options.fold), options, paint)


def _table(rows: Sequence[ModuleRow], labels: Iterable[str], options: TreeOptions, paint: Paint) -> str:
    header = ["module", *options.columns]
    lines = [
        [label, *(_cell(row, name, options) for name in options.columns)]
        for row, label in zip(rows, labels, strict=True)
    ]
    right = [position for position, name in enumerate(header) if name in _RIGHT]
    return aligned([header, *lines], right=right, paint=paint)


def _cell(row: ModuleRow, column: str, options: TreeOptions) -> str:
    times = row.repeats if options.fold else 1
    match column:
        case "class":
            return f"{times} x {row.class_name}" if times > 1 else row.class_name
        case "params":
            return show_count(row.parameters) if row.parameters else "-"
        case "bytes":
            return show_bytes(row.parameter_bytes) if row.parameter_bytes else "-"
        case "calls":
            return str(row.calls) if row.calls or row.container else "never"
        case "inputs":
            return _specs(row.inputs)
        case _:
            return _specs(row.outputs)


def _specs(specs: Sequence[TensorSpec]) -> str:
    shown = " ".join(spec.short for spec in specs[:_MOST_SHOWN])
    more = len(specs) - _MOST_SHOWN
    return (f"{shown} +{more}" if more > 0 else shown) or "-"


def totals_text(trace: Trace, paint: Paint = plain) -> str:
    """The totals, the capture mode, and assumptions about the inputs."""
    found = totals(trace)
    provenance = trace.provenance
    not_sized = f", {many(found.unsized_parameters, 'tensor')} of unknown size" if found.unsized_parameters else ""
    rows = [
        ("parameters", f"{found.parameters:,} ({show_bytes(found.parameter_bytes)}{not_sized})"),
        ("trainable", f"{found.trainable_parameters:,}"),
        ("buffers", show_bytes(found.buffer_bytes)),
        ("modules", f"{found.modules:,} ({found.unique_modules:,} unique, {found.called_modules:,} called)"),
        ("ops", f"{many(found.ops, 'call')} of {many(found.distinct_ops, 'operator')}"),
        ("captured", f"with {provenance.mode} tensors ({provenance.mode_reason})"),
        ("inputs", provenance.inputs or "given"),
    ]
    rows.extend(("", note) for note in trace.notes)
    return aligned([(paint_label(label, paint), value) for label, value in rows], header=False)


def operators_text(trace: Trace, paint: Paint = plain) -> str:
    """Each op overload with its calls, its most frequent shapes and the modules that use it."""
    variants: defaultdict[str, list[str]] = defaultdict(list)
    for row in variant_rows(trace):
        variants[row.op].append(row.output)
    users: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for use in use_rows(trace):
        owner = trace.modules[use.module].class_name.rpartition(".")[2] if use.module >= 0 else "(none)"
        users[use.op][owner] = None
    rows = [("operator", "calls", "shapes", "result", "used by")]
    rows.extend(
        (row.op, f"{row.calls:,}", f"{row.variants:,}", variants[row.op][0][:60], _listed(list(users[row.op])))
        for row in operator_rows(trace)
    )
    return aligned(rows, right=(1, 2), paint=paint)


def unique_text(trace: Trace, paint: Paint = plain) -> str:
    """Each distinct module once."""
    rows = [("id", "class", "times", "calls", "params", "inputs", "outputs", "first at")]
    for module in unique_modules(trace).modules:
        rows.append(
            (
                module.id,
                module.class_name.rpartition(".")[2],
                str(len(module.occurrences)),
                str(module.calls),
                show_count(module.parameters) if module.parameters else "-",
                _listed([str(list(shape)) for shape in module.input_shapes]),
                _listed([str(list(shape)) for shape in module.output_shapes]),
                module.module_path or "(root)",
            )
        )
    return aligned(rows, right=(2, 3, 4), paint=paint)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_SHOWN
    return (", ".join(names[:_MOST_SHOWN]) + (f" +{more}" if more > 0 else "")) or "-"

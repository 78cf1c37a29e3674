"""The text of `torchstone cost`: module tree, top ops, totals, traffic, peak, ops without a price, other counters."""

from collections.abc import Mapping, Sequence

from torchstone.record.base import Record
from torchstone.record.cost import Category, CostTable, GroupCost, Kind, ModuleCost, OpCost, PeerCount
from torchstone.record.trace import Trace
from torchstone.report.folding import Fold, module_folds
from torchstone.report.inspect_text import failure_text, paint_label, tree_labels
from torchstone.report.text import Paint, aligned, plain
from torchstone.report.view.modules import ModuleRow, folded_rows, module_rows
from torchstone.units import show_bytes, show_count, show_seconds

_PERCENT = 100
_ALIVE_SHOWN = 8


class CostTextOptions(Record, frozen=True, kw_only=True):
    """What of the table is shown."""

    depth: int | None = 4
    text: str = ""  # only modules whose path or class contains it
    fold: bool = True
    top: int = 10
    by: str = "module"  # module, op, class or depth


def cost_text(table: CostTable, trace: Trace, options: CostTextOptions, paint: Paint = plain) -> str:
    """The whole result."""
    parts = (
        _main_text(table, trace, options, paint),
        totals_text(table, paint),
        traffic_text(table, paint),
        peak_text(table, paint),
        unpriced_text(table, paint),
        failure_text(trace, paint),
    )
    return "\n\n".join(part for part in parts if part)


def _main_text(table: CostTable, trace: Trace, options: CostTextOptions, paint: Paint) -> str:
    match options.by:
        case "op":
            return ops_text(table, options.top, paint)
        case "class":
            return _groups_text("class", table.classes[: options.top], table, paint)
        case "depth":
            return _groups_text("depth", table.depths, table, paint)
        case _:
            return tree_text(table, trace, options, paint) + "\n\n" + ops_text(table, options.top, paint)


def tree_text(table: CostTable, trace: Trace, options: CostTextOptions, paint: Paint = plain) -> str:
    """The module tree with the cost of each row; a folded row, and each below it, stands for the sum of its layers."""
    rows = module_rows(trace)
    shown = [
        row
        for row in (folded_rows(rows) if options.fold else rows)
        if (options.depth is None or row.depth <= options.depth) and table.modules[row.index].ops
    ]
    wanted = options.text.lower()
    if wanted:
        shown = [row for row in shown if wanted in row.path.lower() or wanted in row.class_name.lower()]
    labels = [row.path or "(root)" for row in shown] if wanted else tree_labels(shown, rows, fold=options.fold)
    members = _members(rows, module_folds(trace)) if options.fold else {}
    lines: list[tuple[str, ...]] = [("module", "class", unit_of(table), "share", "self", "matmul", "read", "written")]
    lines.extend(_tree_line(row, label, table, members) for row, label in zip(shown, labels, strict=True))
    return aligned(lines, right=(2, 3, 4, 5, 6, 7), paint=paint)


def _members(rows: Sequence[ModuleRow], folds: Sequence[Fold]) -> dict[int, tuple[int, ...]]:
    """The modules that a row stands for: equal layers have equal modules at equal distances from their first."""
    runs = {fold.first: fold.members for fold in folds}
    found: dict[int, tuple[int, ...]] = {}
    for row in rows:
        above = found.get(row.parent, (row.parent,)) if row.index else (0,)
        own = runs.get(row.index, (row.index,))
        found[row.index] = tuple(first - row.parent + one for first in above for one in own) if row.index else (0,)
    return found


def _tree_line(row: ModuleRow, label: str, table: CostTable, members: Mapping[int, Sequence[int]]) -> tuple[str, ...]:
    costs = [table.modules[member] for member in members.get(row.index, (row.index,))]
    name = f"{len(costs)} x {row.class_name}" if len(costs) > 1 else row.class_name
    flops = sum(cost.flops for cost in costs)
    return (
        label,
        name,
        show_count(flops),
        share(flops, table.totals.flops),
        show_count(sum(cost.self_flops for cost in costs)),
        show_count(sum(cost.matmul_flops for cost in costs)),
        show_bytes(sum(cost.bytes_read for cost in costs)),
        show_bytes(sum(cost.bytes_written for cost in costs)),
    )


def ops_text(table: CostTable, top: int, paint: Paint = plain) -> str:
    """The ops that cost most, by FLOPs and then by bytes."""
    lines: list[tuple[str, ...]] = [("op", "kind", "calls", unit_of(table), "share", "read", "written")]
    lines.extend(_op_line(row, table) for row in table.ops[:top] if row.kind is not Kind.VIEW)
    left = [row for row in table.ops[top:] if row.kind is not Kind.VIEW]
    if left:
        flops, moved = sum(row.flops for row in left), sum(row.bytes_read + row.bytes_written for row in left)
        lines.append((f"{len(left)} more ops", "", f"{sum(row.calls for row in left):,}", show_count(flops),
                      share(flops, table.totals.flops), f"{show_bytes(moved)} moved", ""))  # fmt: skip
    return aligned(lines, right=(2, 3, 4, 5, 6), paint=paint)


def _op_line(row: OpCost, table: CostTable) -> tuple[str, ...]:
    if row.kind is Kind.UNPRICED:
        return (row.op, row.kind.value, f"{row.calls:,}", "?", "?", "?", "?")
    return (
        row.op,
        row.kind.value,
        f"{row.calls:,}",
        show_count(row.flops),
        share(row.flops, table.totals.flops),
        show_bytes(row.bytes_read),
        show_bytes(row.bytes_written),
    )


def _groups_text(title: str, groups: Sequence[GroupCost], table: CostTable, paint: Paint) -> str:
    lines = [(title, "modules", f"self {unit_of(table)}", "share", "read", "written")]
    lines.extend(
        (
            group.name.rpartition(".")[2],
            f"{group.modules:,}",
            show_count(group.self_flops),
            share(group.self_flops, table.totals.flops),
            show_bytes(group.self_bytes_read),
            show_bytes(group.self_bytes_written),
        )
        for group in groups
    )
    return aligned(lines, right=(1, 2, 3, 4, 5), paint=paint)


def totals_text(table: CostTable, paint: Paint = plain) -> str:
    """The totals and the conventions behind them."""
    totals, rules = table.totals, table.conventions
    counted = "a multiply-add counts as two" if rules.multiply_add > 1 else "a multiply-add counts as one"
    phase = f", {rules.phase}" if rules.phase else ""
    rows = [
        (unit_of(table), f"{totals.flops:,} ({show_count(totals.flops)})"),
        ("matmul", f"{totals.matmul_flops:,} ({share(totals.matmul_flops, totals.flops)})"),
        ("weights", f"{show_bytes(totals.parameter_bytes)} ({', '.join(rules.dtypes) or 'no parameters'})"),
        ("peak", f"{show_bytes(totals.peak_bytes)} at {table.peak.op or 'start'} in {table.peak.module or '(root)'}"),
        ("counted", f"{counted}; causal attention {rules.causal}; logits {rules.logits}{phase}"),
        ("ops", f"{totals.op_calls:,} calls, {totals.unpriced_calls:,} without a price"),
    ]
    rows.extend(("note", note) for note in table.notes)
    return aligned([(paint_label(label, paint), value) for label, value in rows], header=False)


def traffic_text(table: CostTable, paint: Paint = plain) -> str:
    """Bytes moved at the three levels."""
    levels = table.traffic
    lines: list[tuple[str, ...]] = [
        ("bytes moved", "total", "weights", "KV cache", "activations", f"{unit_of(table)} per byte")
    ]
    for name, level in (("unfused", levels.unfused), ("fused", levels.fused), ("compulsory", levels.compulsory)):
        intensity = f"{table.totals.flops / level.total_bytes:.1f}" if level.total_bytes else "-"
        parts = (show_bytes(level.moved_bytes(category)) for category in Category)
        lines.append((name, show_bytes(level.total_bytes), *parts, intensity))
    return aligned(lines, right=(1, 2, 3, 4, 5), paint=paint)


def peak_text(table: CostTable, paint: Paint = plain) -> str:
    """The tensors that are live when memory use is highest."""
    peak = table.peak
    lines = [("live at the peak", "tensor", "size", "share", "module")]
    for row in peak.alive[:_ALIVE_SHOWN]:
        times = f"{row.count} x " if row.count > 1 else ""
        lines.append((row.name, f"{times}{row.tensor}", show_bytes(row.size_bytes),
                      share(row.size_bytes, peak.total_bytes), row.module or row.category.value))  # fmt: skip
    rest = peak.total_bytes - sum(row.size_bytes for row in peak.alive[:_ALIVE_SHOWN])
    if rest:
        lines.append(("everything else", "", show_bytes(rest), share(rest, peak.total_bytes), ""))
    return aligned(lines, right=(2, 3), paint=paint)


def unpriced_text(table: CostTable, paint: Paint = plain) -> str:
    """The ops that no total contains; empty if every op has a price."""
    if not table.unpriced:
        return ""
    names = ", ".join(f"{op} ({calls:,} x)" for op, calls in table.unpriced.items())
    return paint(f"ops without a price, in no total: {names}", "red")


def comparison_text(table: CostTable) -> str:
    """A line for each other counter, and below them the reasons for each difference; empty where none was run."""
    if table.comparison is None:
        return ""
    ours = table.totals.matmul_flops * 2 // table.conventions.multiply_add
    lines = [("counter", "FLOPs", "of torchstone's", "time", "")]
    lines.append(("torchstone (matmul)", f"{ours:,}", "1.000", "", ""))
    details: list[str] = []
    for one in table.comparison.counters:
        lines.append(_counter_line(one.count, ours))
        if one.count.by_op:
            details.extend(
                f"{one.count.name}: {found.op}: {found.theirs:,} against {found.ours:,}: {found.reason}"
                for found in one.differences
            )
        elif one.count.total_flops not in (None, ours):
            details.append(f"{one.count.name}: {one.inferred}")
    return "\n".join((aligned(lines, right=(1, 2, 3)), *details))


def _counter_line(count: PeerCount, ours: int) -> tuple[str, str, str, str, str]:
    if count.total_flops is None:
        return (count.name, "-", "-", show_seconds(count.seconds), count.error)
    ratio = f"{count.total_flops / ours:.3f}" if ours else "-"
    return (count.name, f"{count.total_flops:,}", ratio, show_seconds(count.seconds), "")


def module_csv(modules: Sequence[ModuleCost]) -> str:
    """One line per module, for a spreadsheet."""
    fields = ("path", "class_name", "flops", "self_flops", "matmul_flops", "self_matmul_flops", "bytes_read",
              "self_bytes_read", "bytes_written", "self_bytes_written", "ops", "unpriced_calls")  # fmt: skip
    lines = [",".join(field.removesuffix("_name") for field in fields)]
    lines.extend(",".join(_cell(getattr(module, field)) for field in fields) for module in modules)
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n') else text


def unit_of(table: CostTable) -> str:
    """What the numbers count."""
    return "FLOPs" if table.conventions.multiply_add > 1 else "MACs"


def share(part: int, whole: int) -> str:
    """A part in percent."""
    return f"{_PERCENT * part / whole:.1f}%" if whole else "-"

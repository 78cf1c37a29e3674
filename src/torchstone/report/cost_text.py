"""Terminal output of `torchstone cost`: totals, tree, ops, traffic, peak, predictions, sweeps."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import log2

from torchstone.record.base import Record
from torchstone.record.cost import (
    Bound,
    CacheMemory,
    Category,
    CostTable,
    DevicePlan,
    GroupCost,
    Kind,
    ModuleCost,
    OpCost,
    PeerCount,
    Prediction,
    TensorParallel,
)
from torchstone.record.trace import Trace
from torchstone.record.unique import Fold, module_folds
from torchstone.report.text import Paint, aligned, failure_text, paint_label, plain, tree_labels
from torchstone.report.view.modules import ModuleRow, folded_rows, module_rows
from torchstone.report.view.source_lines import Amounts, function_rows
from torchstone.units import many, show_bytes, show_count, show_flops, show_seconds

# --- Tree, ops, totals, traffic, peak ---

_PERCENT = 100
_ALIVE_SHOWN = 8
_CODE_SHOWN = 80  # characters


class CostTextOptions(Record, frozen=True, kw_only=True):
    """Which part of the table is shown."""

    depth: int | None = 4
    text: str = ""  # only modules whose path or class contains it
    fold: bool = True
    top: int = 10
    by: str = "module"  # module, op, class, depth or line


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
        case "line":
            return lines_text(table, trace, options.top, paint)
        case _:
            return tree_text(table, trace, options, paint) + "\n\n" + ops_text(table, options.top, paint)


def tree_text(table: CostTable, trace: Trace, options: CostTextOptions, paint: Paint = plain) -> str:
    """The module tree with the cost of each row; a folded row, and each below it, stands for the sum of its layers."""
    folds = module_folds(trace)
    rows = module_rows(trace, folds)
    shown = [
        row
        for row in (folded_rows(rows) if options.fold else rows)
        if (options.depth is None or row.depth <= options.depth) and table.modules[row.index].ops
    ]
    wanted = options.text.lower()
    if wanted:
        shown = [row for row in shown if wanted in row.path.lower() or wanted in row.class_name.lower()]
    labels = [row.path or "(root)" for row in shown] if wanted else tree_labels(shown, rows, fold=options.fold)
    members = _members(rows, folds) if options.fold else {}
    lines: list[tuple[str, ...]] = [("module", "class", unit_of(table), "share", "self", "matmul", "read", "written")]
    lines.extend(_tree_line(row, label, table, members) for row, label in zip(shown, labels, strict=True))
    return aligned(lines, right=(2, 3, 4, 5, 6, 7), paint=paint)


def _members(rows: tuple[ModuleRow, ...], folds: Sequence[Fold]) -> dict[int, tuple[int, ...]]:
    """The modules of each folded row: equal layers have equal modules at equal distances from their first."""
    runs = {fold.first: fold.members for fold in folds}
    found: dict[int, tuple[int, ...]] = {}
    for row in folded_rows(rows):
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
        lines.append((many(len(left), "more op"), "", f"{sum(row.calls for row in left):,}", show_count(flops),
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


def lines_text(table: CostTable, trace: Trace, top: int, paint: Paint = plain) -> str:
    """The lines of the model's code that cost most, each with all that runs because of it."""
    found: list[tuple[str, str, Amounts]] = []
    for function in function_rows(trace, table.signatures):
        for line in function.lines:
            if line.amounts is not None:
                place = f"{function.file.replace(chr(92), '/').rpartition('/')[2]}:{line.number}"
                found.append((place, line.text.strip(), line.amounts))
    if not found:
        return "The lines of code are not known: the trace has none, as one of a .pt2 file; capture the model itself."
    found.sort(key=lambda one: (-one[2].flops, -one[2].moved_bytes))
    lines = [("line", unit_of(table), "share", "moved", "new tensors", "ops", "code")]
    lines.extend(
        (
            place,
            show_count(amounts.flops),
            share(amounts.flops, table.totals.flops),
            show_bytes(amounts.moved_bytes),
            show_bytes(amounts.made_bytes),
            f"{amounts.ops:,}",
            code if len(code) <= _CODE_SHOWN else f"{code[:_CODE_SHOWN]}...",
        )
        for place, code, amounts in found[:top]
    )
    return aligned(lines, right=(1, 2, 3, 4, 5), paint=paint)


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


def formats_text(table: CostTable) -> str:
    """In which number formats memory is priced, and who says so."""
    rules = table.conventions
    held = [f"weights {', '.join(rules.dtypes) or 'none'}"]
    held += [f"KV cache {rules.formats.kv_cache}"] if rules.formats.kv_cache else []
    held += [f"activations {rules.formats.activations}"] if rules.formats.activations else []
    held += [f"tiles of {rules.tile} x {rules.tile}"] if rules.tile else []
    first = "; ".join(held) + (f" ({rules.formats.source})" if rules.formats.source else "")
    return "\n".join([first, *(f"assumed: {one}" for one in rules.assumed)])


def totals_text(table: CostTable, paint: Paint = plain) -> str:
    """The totals and the conventions behind them."""
    totals, rules = table.totals, table.conventions
    counted = "a multiply-add counts as two" if rules.multiply_add > 1 else "a multiply-add counts as one"
    phase = f", {rules.phase}" if rules.phase else ""
    rows = [
        (unit_of(table), f"{totals.flops:,} ({show_count(totals.flops)})"),
        ("matmul", f"{totals.matmul_flops:,} ({share(totals.matmul_flops, totals.flops)})"),
        ("weights", f"{show_bytes(totals.parameter_bytes)} ({', '.join(rules.dtypes) or 'no parameters'})"),
        ("peak", f"{peak_range(table)}; at {table.peak.op or 'start'} in {table.peak.module or '(root)'}"),
        *([("cache", cache_text(table.cache))] if table.cache else []),
        ("counted", f"{counted}; causal attention {rules.causal}; logits {rules.logits}{phase}"),
        ("ops", f"{many(totals.op_calls, 'call')}, {totals.unpriced_calls:,} unpriced"),
    ]
    rows.extend(("note", note) for note in table.notes)
    return aligned([(paint_label(label, paint), value) for label, value in rows], header=False)


def cache_text(cache: CacheMemory) -> str:
    """What is kept from one step to the next, and by which layers."""
    parts = []
    for part in cache.parts:
        layers = f"{part.layers} {'layer' if part.layers == 1 else 'layers'}"
        tokens = "" if part.tokens is None else f" x {many(part.tokens, 'token')}"
        parts.append(f"{show_bytes(part.size_bytes)} {part.kind} ({layers}{tokens})")
    blocks = "" if cache.block_size is None else f", in blocks of {many(cache.block_size, 'token')}"
    return f"{show_bytes(cache.size_bytes)} {cache.when}{blocks}: {', '.join(parts)}"


def peak_range(table: CostTable) -> str:
    """The two ends of peak memory; one where eager lifetimes were not observed."""
    ideal, eager = table.peak.total_bytes, table.peak.eager_bytes
    if eager is None:
        return f"at least {show_bytes(ideal)} (each tensor freed after its last use)"
    if eager == ideal:
        return f"{show_bytes(ideal)} (ideal and eager)"
    return f"{show_bytes(ideal)} (ideal: freed after the last use) to {show_bytes(eager)} (eager: as Python held it)"


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
    return paint(f"unpriced ops, not included in any total: {names}", "red")


def comparison_text(table: CostTable) -> str:
    """A line for each other counter, and below them the reasons for each difference; empty where none was run."""
    if table.comparison is None:
        return ""
    ours = table.totals.matmul_flops * 2 // table.conventions.multiply_add
    lines = [("counter", "FLOPs", "ratio", "time", "")]
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


# --- Predicted time, tensor parallelism, optimizer: a prediction is always called one ---

_MICRO = 1_000_000


def prediction_text(table: CostTable, trace: Trace, top: int, paint: Paint = plain) -> str:
    """Predicted time, tensor parallelism and optimizer, as requested; empty if none was."""
    parts = []
    if table.prediction is not None:
        parts += [slowest_text(table, table.prediction, trace, top, paint), _time_text(table, table.prediction, paint)]
    if table.tensor_parallel is not None:
        parts.append(split_text(table.tensor_parallel, paint, unit=unit_of(table)))
    if table.optimiser is not None:
        parts.append(_optimiser_text(table, paint))
    return "\n\n".join(parts)


def _padding_text(table: CostTable, side: int) -> str:
    """What whole tiles add to the peak."""
    names = {one: "KV cache" if one is Category.KV_CACHE else one.value for one in Category}
    padding = {one: table.peak.padding.get(one, 0) for one in Category}
    parts = ", ".join(f"{show_bytes(size)} {names[one]}" for one, size in padding.items() if size >= 0)
    whole = f"matrices in whole tiles of {side} x {side}"
    less = ", ".join(f"{show_bytes(-size)} less of {names[one]}" for one, size in padding.items() if size < 0)
    moved = f" (it is at another op then, with {less})" if less else ""
    return f"{whole} add {show_bytes(max(sum(padding.values()), 0))} to the peak: {parts}{moved}"


def _time_text(table: CostTable, prediction: Prediction, paint: Paint) -> str:
    hardware = prediction.hardware
    bounds = ", ".join(
        f"{show_seconds(seconds)} bound by {bound.value}" for bound, seconds in prediction.by_bound_s.items() if seconds
    )
    rows = [
        ("predicted", f"at least {show_seconds(prediction.total_s)} on {hardware.title}, op after op ({bounds})"),
        ("fused", f"{show_seconds(prediction.fused_s)} when pointwise chains and attention stay on chip"),
        ("ideal", f"{show_seconds(prediction.ideal_s)} when everything overlaps (lower bound)"),
        ("fits", _fits(prediction)),
        *([("tiles", _padding_text(table, prediction.hardware.tile))] if prediction.hardware.tile else []),
        ("source", f"{hardware.source}; {prediction.basis}"),
        *(() if prediction.plan is None else plan_rows(prediction.plan)),
    ]
    rows.extend(("note", note) for note in prediction.notes)
    from torchstone.report.view.cost import advice

    for one in advice(table):
        most = "" if one.saves_s is None else f" (saves at most {show_seconds(one.saves_s)})"
        rows.append(("advice", f"{one.text}{most}"))
    return aligned([(paint_label(label, paint), value) for label, value in rows], header=False)


def plan_rows(plan: DevicePlan) -> list[tuple[str, str]]:
    """The memory plan of a board, and why it differs from the estimate."""
    where = f"on {plan.board}, {plan.version}"
    if plan.outcome != "accepted":
        return [("plan", f"{where} the model ends with {plan.outcome}: {plan.detail}")]
    fits = f"{show_bytes(plan.dram_bytes)} of {show_bytes(plan.dram_capacity_bytes)} of DRAM"
    core = f"{show_bytes(plan.l1_bytes)} of {show_bytes(plan.l1_capacity_bytes)} of L1 per core"
    rows = [("plan", f"{where} it takes {fits} and {core}, by ttnn's allocator")]
    change = plan.dram_bytes - plan.estimate_bytes
    rows.append(("difference", f"{_signed(change)} to the estimate of {show_bytes(plan.estimate_bytes)}:"))
    return rows + [("", f"{_signed(size)}  {reason}") for reason, size in plan.difference]


def _signed(size: int) -> str:
    return f"{'-' if size < 0 else '+'}{show_bytes(abs(size))}"


def needed_memory(prediction: Prediction) -> str:
    """The peak on a device, as a range where both ends are known and differ."""
    ideal, eager = map(show_bytes, (prediction.peak_bytes, prediction.eager_peak_bytes or prediction.peak_bytes))
    least = "at least " if prediction.unsized or prediction.ended_early else ""
    reserved = prediction.reserved_peak_bytes
    allocator = "" if reserved is None else f", {show_bytes(reserved)} reserved by PyTorch's caching allocator"
    return least + (ideal if ideal == eager else f"{ideal} (ideal) to {eager} (eager)") + allocator


def _fits(prediction: Prediction) -> str:
    memory = show_bytes(prediction.hardware.memory_bytes)
    left_bytes = prediction.hardware.memory_bytes - prediction.peak_bytes
    close = show_bytes(prediction.peak_bytes) == memory and left_bytes
    unsized = f"; the size of {many(prediction.unsized, 'tensor')} is not known" if prediction.unsized else ""
    margin = f" ({show_bytes(abs(left_bytes))} {'left' if left_bytes > 0 else 'too much'})" if close else ""
    ended = "; the forward pass ended early" if prediction.ended_early else ""
    batch = largest_batch_text(prediction)
    return f"{prediction.verdict.value}: {needed_memory(prediction)} of {memory}{margin}{unsized}{ended}{batch}"


def largest_batch_text(prediction: Prediction) -> str:
    """The batches that fit, as the end of a sentence; empty where none is known."""
    ideal = _batches(prediction.largest_batch, prediction.largest_batch_at_most)
    eager = _batches(prediction.eager_largest_batch, prediction.eager_largest_batch_at_most)
    if ideal is None:
        why = prediction.largest_batch_unknown
        return f"; no largest batch is known: {why}" if why else ""
    if ideal == "0":
        return "; not even a batch of 1 fits"
    verified = prediction.largest_batch_verified
    about = "about " if prediction.captured_batch == 1 and not verified else ""
    both = f"{ideal} ideal" if eager is None else ideal if eager == ideal else f"{eager} eager, {ideal} ideal"
    return f"; largest batch {about}{both}{' (verified)' if verified else ''}"


def _batches(least: int | None, most: int | None) -> str | None:
    """One number where both ends are equal; a record of an earlier version has one alone."""
    return None if least is None else f"{least:,}" if most in (None, least) else f"{least:,} to {most:,}"


def slowest_text(table: CostTable, prediction: Prediction, trace: Trace, top: int, paint: Paint = plain) -> str:
    """The ops that take most of the predicted time, with what they wait for."""
    times: dict[str, list[float]] = {}
    bounds: dict[str, dict[Bound, float]] = {}
    for signature, cost, found in zip(
        trace.recorded_ops.signatures, table.signatures, prediction.signatures, strict=True
    ):
        if found is None:
            continue
        row = times.setdefault(signature.op, [0.0, 0.0, 0.0])
        seconds = found.seconds * cost.calls
        row[0] += seconds
        row[1] += cost.flops * cost.calls
        row[2] += (cost.bytes_read + cost.bytes_written) * cost.calls
        by_bound = bounds.setdefault(signature.op, {})
        by_bound[found.bound] = by_bound.get(found.bound, 0.0) + seconds
    slowest = sorted((op for op in times if times[op][0]), key=lambda op: (-times[op][0], op))[:top]
    lines = [("op", "predicted", "share", "bound", "FLOPs per byte")]
    lines.extend(
        (
            op,
            show_seconds(times[op][0]),
            share(round(times[op][0] * _MICRO), round(prediction.total_s * _MICRO)),
            max(bounds[op], key=lambda bound, op=op: bounds[op][bound]).value,  # type: ignore[misc]
            f"{times[op][1] / times[op][2]:.1f}" if times[op][2] else "-",
        )
        for op in slowest
    )
    return aligned(lines, right=(1, 2, 4), paint=paint)


def _split_memory(split: TensorParallel) -> str:
    """The peak of one device, and whether it fits."""
    cache = f", {show_bytes(split.kv_cache_bytes)} of it KV cache" if split.kv_cache_bytes else ""
    peak = f"{show_bytes(split.peak_bytes or 0)} at the peak of each{cache} (ideal)"
    if split.memory_bytes is None:
        return peak
    answer = {True: "yes, with ideal lifetimes", False: "no", None: "unknown"}[split.fits]
    return f"fits: {answer}: {peak}"


def split_rows(split: TensorParallel, unit: str = "FLOPs") -> list[tuple[str, str]]:
    """What each device of a split does, holds and sends."""
    calls = Counter[str]()
    for one in split.collectives:
        calls[one.kind] += one.calls
    kinds = " and ".join(f"{count:,} {kind}" for kind, count in sorted(calls.items(), reverse=True))
    room = "" if split.memory_bytes is None else f" in {show_bytes(split.memory_bytes)}"
    weights = f"{show_bytes(split.weight_bytes)} of weights{room}"
    rows = [
        ("devices", f"{split.devices}, each {show_flops(split.flops, unit)} and {weights}"),
        *(() if split.peak_bytes is None else (("memory", _split_memory(split)),)),
        ("traffic", f"{show_bytes(split.collective_bytes)} sent by each, in {kinds or 'no collectives'}"),
    ]
    if split.seconds is not None:
        rows.append(("predicted", f"at least {show_seconds(split.seconds)} with collectives"))
    rows.extend(("note", note) for note in split.notes)
    return rows


def split_text(split: TensorParallel, paint: Paint = plain, *, unit: str = "FLOPs") -> str:
    """The same as lines."""
    return aligned([(paint_label(label, paint), value) for label, value in split_rows(split, unit)], header=False)


def _optimiser_text(table: CostTable, paint: Paint) -> str:
    step = table.optimiser
    if step is None:
        return ""
    peak_bytes = table.totals.peak_bytes + step.state_bytes
    rows = [
        ("optimizer", f"{step.name} over {many(step.parameters, 'parameter')}: {show_flops(step.flops)} a step"),
        ("states", f"{show_bytes(step.state_bytes)}, gradients {show_bytes(step.gradient_bytes)}"),
        ("peak", f"{show_bytes(peak_bytes)} with the states"),
    ]
    if table.prediction is not None:
        hardware = table.prediction.hardware
        moved_s = (step.bytes_read + step.bytes_written) / hardware.memory_bytes_per_s
        seconds = max(moved_s, step.flops / hardware.vector_flops, hardware.launch_s)
        rows.append(("predicted", f"at least {show_seconds(seconds)} for the step, in addition to the passes"))
    return aligned([(paint_label(label, paint), value) for label, value in rows], header=False)


# --- Sweep over sizes (--sweep): one line per size, FLOPs as a bar on a logarithmic scale ---

_WIDEST = 24


_NO_FAILURES: Mapping[int, str] = {}


def sweep_text(
    parameter: str,
    points: Sequence[tuple[int, CostTable]],
    paint: Paint = plain,
    failures: Mapping[int, str] = _NO_FAILURES,
) -> str:
    """One line for each value of the parameter; where the forward pass failed, the reason in place of numbers."""
    first = points[0][1]
    header = [parameter, unit_of(first), "matmul", "moved", "fused", "peak", f"{unit_of(first)} per byte"]
    predicted = first.prediction is not None
    lines: list[list[str]] = [[*header, *(["predicted", "fits"] if predicted else []), f"log {unit_of(first)}"]]
    ran = [(value, table) for value, table in points if value not in failures]
    bars = dict(zip([value for value, _ in ran], _bars([table.totals.flops for _, table in ran]), strict=True))
    for value, table in points:
        if value in failures:
            lines.append([f"{value:,}", *["-"] * (len(lines[0]) - 2), "fails"])
        else:
            lines.append([*_cells(value, table), *(_predicted(table) if predicted else []), bars[value]])
    notes = [f"{parameter} = {value:,}: the forward pass fails: {error}" for value, error in failures.items()]
    if len(ran) > 1 and all(table.totals == first.totals for _, table in ran):
        notes.append(f"{parameter} has no effect here: neither the model nor its inputs use it")
    table_text = aligned(lines, right=range(len(lines[0]) - 1), paint=paint)
    return "\n\n".join([table_text, *(["\n".join(f"note  {one}" for one in notes)] if notes else [])])


def sweep_csv(
    parameter: str, points: Sequence[tuple[int, CostTable]], failures: Mapping[int, str] = _NO_FAILURES
) -> str:
    """One line for each value of the parameter, for a spreadsheet; where the forward pass failed, without numbers."""
    fields = ("flops", "matmul_flops", "bytes_read", "bytes_written", "peak_bytes", "unpriced_calls")
    lines = [",".join((parameter, *fields, "fused_bytes", "predicted_s", "fits"))]
    for value, table in points:
        if value in failures:
            lines.append(f"{value}" + "," * (len(fields) + 3))
            continue
        found = table.prediction
        cells = [value, *(getattr(table.totals, field) for field in fields), table.traffic.fused.total_bytes]
        lines.append(",".join(map(str, [*cells, *(("", "") if found is None else (found.total_s, found.fits))])))
    return "\n".join(lines) + "\n"


def _cells(value: int, table: CostTable) -> list[str]:
    totals, moved = table.totals, table.traffic.unfused.total_bytes
    return [
        f"{value:,}",
        show_count(totals.flops),
        show_count(totals.matmul_flops),
        show_bytes(moved),
        show_bytes(table.traffic.fused.total_bytes),
        show_bytes(totals.peak_bytes),
        f"{totals.flops / moved:.1f}" if moved else "-",
    ]


def _predicted(table: CostTable) -> list[str]:
    found = table.prediction
    return ["-", "-"] if found is None else [show_seconds(found.total_s), found.verdict.value]


def _bars(values: Sequence[int]) -> list[str]:
    if not values:
        return []
    heights = [log2(value) if value > 0 else 0.0 for value in values]
    lowest, highest = min(heights), max(heights)
    spread = highest - lowest or 1.0
    return ["█" * (1 + round((_WIDEST - 1) * (height - lowest) / spread)) for height in heights]

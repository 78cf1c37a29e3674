"""Terminal output of `torchstone memory`: verdict, peaks, live tensors, growth, padding."""

from collections.abc import Sequence

from torchstone.memory.compare import summarize
from torchstone.memory.documents import peak_changes
from torchstone.memory.growth import find_growth
from torchstone.memory.ledger import live_at_peak, live_before
from torchstone.memory.out_of_memory import diagnose, explain_last_failure
from torchstone.memory.study import UNKNOWN, Study, tick_bytes
from torchstone.memory.usage import find_peaks, late_frees, padded_ops, place_of, plain_location, top_consumers
from torchstone.record.memory import NONE
from torchstone.record.memory_findings import (
    Change,
    GrowthPart,
    LiveSet,
    MemoryComparison,
    OpDifference,
    OutOfMemory,
    Peak,
)
from torchstone.report.text import Paint, aligned, plain
from torchstone.units import many, show_bytes

_PERCENT = 100
_WIDEST = 70
L1_CAVEAT = "L1 readings exclude circular buffers and temporaries of an op: the true peak is higher."


def memory_text(study: Study, *, top: int = 10, paint: Paint = plain) -> str:
    """The whole analysis: verdict, peaks, live tensors, growth, padding, missing data."""
    failure = explain_last_failure(study)
    parts = [
        head_text(study),
        "" if failure is None else failure_text(study, failure, paint),
        "" if failure is None else _alive_at_failure(study, failure, top=top, paint=paint),
        peaks_text(study, paint),
        *(alive_text(study, peak, top=top, paint=paint) for peak in find_peaks(study) if _is_used(peak)),
        "\n".join(passes_text(study)),
        "" if failure is not None else changes_text(study, top=top, paint=paint),
        late_text(study, top=top, paint=paint),
        growth_text(study, top=top, paint=paint),
        padding_text(study, top=top, paint=paint),
        notes_text(study, paint),
    ]
    return "\n\n".join(part for part in parts if part)


def head_text(study: Study) -> str:
    """What the log holds, in one line."""
    timeline = study.timeline
    return (
        f"{timeline.source}: {_count(len(timeline.ops), 'op')}, {_count(timeline.passes, 'pass', 'passes')} of "
        f"{_count(len(timeline.graphs), 'graph')}, {_count(timeline.evidence.lines, 'line')}, "
        f"{timeline.unread_count:,} unread"
    )


def failure_text(study: Study, failure: OutOfMemory, paint: Paint) -> str:
    """Why the device ran out, and what to try."""
    where = "while no program was running"
    if failure.op != NONE:
        where = f"at op {failure.op}: {study.name_of(failure.op)}{_module(study, failure.op)}"
    title = paint(f"OUT OF MEMORY ({failure.verdict.value.replace('_', ' ')}) {where}", "red")
    numbers = [
        f"{name} {show_bytes(size)}"
        for name, size in (
            ("needed", failure.needed_bytes),
            ("free", failure.free_bytes),
            ("largest block", failure.largest_block_bytes),
            ("bank", failure.failure.bank_bytes),
        )
        if size is not None
    ]
    lines = [title]
    if numbers:
        lines.append(f"  per bank of {failure.failure.memory}: {', '.join(numbers)}")
    if failure.recovered:
        lines.append("  the script went on and completed programs afterwards")
    return "\n".join(lines + [f"  - {advice}" for advice in failure.advice])


def _alive_at_failure(study: Study, failure: OutOfMemory, *, top: int, paint: Paint) -> str:
    sets = live_before(study, failure.op) if failure.op != NONE else ()
    live = next((one for one in sets if one.memory == failure.failure.memory), None)
    title = f"live in {failure.failure.memory} before the failing op"
    return "" if live is None else _live_text(study, live, title, top=top, paint=paint)


def _module(study: Study, op: int) -> str:
    call = study.call(op)
    place = place_of(call.location) if call else None
    if place is None:
        return ""
    return f", in {place.path or place.class_name}" + (f" ({place.source})" if place.source else "")


def peaks_text(study: Study, paint: Paint) -> str:
    """The peak of every memory."""
    rows = [["memory", "peak per bank", "of", "full", "peak on device", "fragmented", "state before"]]
    for peak in find_peaks(study):
        state = peak.state
        used = f"{_PERCENT * state.allocated / state.capacity:.1f}%" if state.capacity else "-"
        split = "-" if state.fragmentation is None else f"{_PERCENT * state.fragmentation:.1f}%"
        rows.append([
            peak.memory,
            _mib(study, state.allocated),
            _mib(study, state.capacity) if state.capacity else "-",
            used,
            show_bytes(tick_bytes(study.timeline, state.allocated * state.banks)),
            split,
            _where(study, peak),
        ])  # fmt: skip
    if len(rows) == 1:
        return ""
    is_logged = not study.timeline.allocations  # a report of ttnn states circular buffers
    note = (
        f"\n{L1_CAVEAT}"
        if is_logged and any(peak.memory == "L1" and _is_used(peak) for peak in find_peaks(study))
        else ""
    )
    return aligned(rows, right=(1, 2, 3, 4, 5), paint=paint) + note


def alive_text(study: Study, peak: Peak, *, top: int, paint: Paint) -> str:
    """The live tensors at a peak, with their owners."""
    live = live_at_peak(study, peak)
    if live is None:
        return ""
    return _live_text(study, live, f"live at the {peak.memory} peak", top=top, paint=paint)


def op_text(study: Study, op: int, *, top: int, paint: Paint) -> str:
    """One op: what it is, its effect, and the tensors live before it."""
    effects = [
        f"{name} {_signed(study, effect)}"
        for name, readings in study.readings.items()
        if (effect := readings.effects[op]) != UNKNOWN
    ]
    head = f"op {op}: {study.name_of(op)}{_module(study, op)}\neffect per bank: {', '.join(effects) or 'unknown'}"
    sets = live_before(study, op)
    tables = (_live_text(study, live, f"live in {live.memory} before it", top=top, paint=paint) for live in sets)
    return "\n\n".join([head, *(table for table in tables if table)])


def _live_text(study: Study, live: LiveSet, title: str, *, top: int, paint: Paint) -> str:
    if not live.buffers:
        return f"{title}: unknown, because {live.doubt}" if live.doubt else ""
    rows = [[title, "per bank", "on device", "padding", "tensor"]]
    for buffer in live.buffers[:top]:
        lost = buffer.padded_bytes - (buffer.padded_bytes if buffer.logical_bytes is None else buffer.logical_bytes)
        tensor = study.timeline.types[buffer.type].text
        sizes = (buffer.bank_bytes, buffer.padded_bytes, lost)
        rows.append([_short(f"{buffer.origin.value}: {buffer.owner}"), *map(show_bytes, sizes), tensor])
    return aligned(rows, right=(1, 2, 3), paint=paint) + f"\n{_rest(study, live, top)}"


def _rest(study: Study, live: LiveSet, top: int) -> str:
    more = len(live.buffers) - top
    words = [f"{more} smaller buffers"] if more > 0 else []
    lost = live.padded_bytes - live.logical_bytes
    if live.measured_bytes is not None:
        words.append(f"{show_bytes(live.explained_bytes)} of {show_bytes(live.measured_bytes)} per bank explained")
    words.append(f"{show_bytes(lost)} of {show_bytes(live.padded_bytes)} on the device is padding")
    if (live.unexplained_bytes or 0) > tick_bytes(study.timeline, 2):
        words.append(f"{show_bytes(live.unexplained_bytes or 0)} per bank not attributed to a tensor in the log")
    if live.doubt:
        words.append(live.doubt)
    return "; ".join(words)


def passes_text(study: Study) -> list[str]:
    """Memory that grows from pass to pass, a sentence each."""
    lines = []
    for one in find_growth(study):
        end = ""
        if one.passes_left is not None:
            step = len(study.timeline.graphs[one.graph].runs) + one.passes_left
            end = f"; out of memory at about step {step:,} of this graph"
        lines.append(
            f"{one.memory}: +{show_bytes(one.bytes_per_pass)} per bank with each pass of graph {one.graph} "
            f"({many(one.passes, 'pass', 'passes')}): {parts_text(one.parts)}{end}."
        )
    return lines


def parts_text(parts: Sequence[GrowthPart]) -> str:
    """What a change of memory is made of."""
    causes = [
        f"{part.kind}{f' of {part.owner}' if part.owner else ''} {_signed_bytes(part.bytes_per_pass)}" for part in parts
    ]
    return ", ".join(causes) or "no cause is known"


def _signed_bytes(size: int) -> str:
    return f"+{show_bytes(size)}" if size >= 0 else f"-{show_bytes(-size)}"


def changes_text(study: Study, *, top: int, paint: Paint) -> str:
    """Changes that would lower a peak, each replayed over the timeline."""
    rows = [["change, replayed", "memory", "saves at the peak", "new peak"]]
    for one in sorted(peak_changes(study), key=lambda change: -change.saved_bytes)[:top]:
        rows.append([_short(one.change), one.memory, show_bytes(one.saved_bytes), show_bytes(one.peak_bytes)])
    return aligned(rows, right=(2, 3), paint=paint) if len(rows) > 1 else ""


def late_text(study: Study, *, top: int, paint: Paint) -> str:
    """The tensors that stayed after their last use, with the source line of that use."""
    rows = [["live after its last use", "memory", "per bank", "for", "last used at"]]
    for late in late_frees(study)[:top]:
        one = late.allocation
        call = study.call(one.last_use)
        where = plain_location(call.location) if call and call.location != "unknown" else ""
        until = many(late.idle_calls, "call") if late.is_freed else f"{many(late.idle_calls, 'call')}, never freed"
        last = f"op {one.last_use}{f', {where}' if where else ''}"
        rows.append([_short(one.owner), one.memory, show_bytes(one.bank_bytes), until, last])
    return aligned(rows, right=(2,), paint=paint) if len(rows) > 1 else ""


def growth_text(study: Study, *, top: int, paint: Paint) -> str:
    """The ops that made memory grow."""
    rows = [["op", "growth per bank", "expected", "runs", "what"]]
    for memory in study.readings:
        for one in top_consumers(study, memory, limit=top):
            expected = "-" if one.expected_bytes is None else show_bytes(one.expected_bytes)
            text = _short(study.name_of(one.op))
            rows.append([f"{one.op}", f"{memory} {_mib(study, one.effect_ticks)}", expected, f"{one.runs}", text])
    return aligned(rows, right=(0, 1, 2, 3), paint=paint) if len(rows) > 1 else ""


def padding_text(study: Study, *, top: int, paint: Paint) -> str:
    """The ops that lose most to tile padding."""
    rows = [["op", "elements", "takes", "tensor", "why", "what"]]
    for one in padded_ops(study)[:top]:
        sizes = (show_bytes(one.logical_bytes), show_bytes(one.padded_bytes))
        tensor = study.timeline.types[one.type].text
        rows.append([f"{one.op}", *sizes, tensor, one.reason, _short(study.name_of(one.op))])
    return aligned(rows, right=(0, 1, 2), paint=paint) if len(rows) > 1 else ""


def notes_text(study: Study, paint: Paint) -> str:
    """What is missing or damaged."""
    return "\n".join(f"{paint('note:', 'bold')} {note}" for note in diagnose(study.timeline))


def comparison_text(first: Study, second: Study, found: MemoryComparison, *, top: int, paint: Paint = plain) -> str:
    """Two runs side by side."""
    rows = [["peak per bank", "first", "second", "difference"]]
    for mine, other in found.peaks:
        known = mine or other
        ours, theirs = (None if one is None else one.state.allocated for one in (mine, other))
        change = "-" if ours is None or theirs is None else _signed(first, theirs - ours)
        sizes = (_known_mib(first, ours), _known_mib(second, theirs))
        rows.append([known.memory if known else "", *sizes, change])
    parts = [aligned(rows, right=(1, 2, 3), paint=paint)]
    parts.append(
        f"{many(found.same_ops, 'op is', 'ops are')} the same, {found.removed_ops:,} only in the "
        f"first, {found.added_ops:,} only in "
        f"the second{_first_difference(first, second, found)}"
    )
    shown = sorted(
        found.differences, key=lambda row: -abs((row.second_effect_ticks or 0) - (row.first_effect_ticks or 0))
    )
    table = [["change", "first op", "second op", f"{found.memory} first", f"{found.memory} second", "what"]]
    for row in shown[:top]:
        places = ("-" if op == NONE else str(op) for op in (row.first_op, row.second_op))
        effects = (_known_mib(first, ticks) for ticks in (row.first_effect_ticks, row.second_effect_ticks))
        change = "effect" if row.change is Change.SAME else row.change.value
        table.append([change, *places, *effects, _short(row.text)])
    if len(table) > 1:
        parts.append(aligned(table, right=(1, 2, 3, 4), paint=paint))
    return "\n\n".join(parts)


def runs_text(runs: Sequence[tuple[str, Study]], *, paint: Paint = plain) -> str:
    """The peaks of several runs, one below the other, each with its change from the one before."""
    memories = list(dict.fromkeys(peak.memory for _, one in runs for peak in find_peaks(one) if _is_used(peak)))
    rows = [["run", *(f"{memory} peak per bank" for memory in memories), "ops", "passes", "outcome"]]
    before: dict[str, int] = {}
    for name, study in runs:
        peaks = {peak.memory: peak.state.allocated for peak in find_peaks(study)}
        cells = []
        for memory in memories:
            ticks = peaks.get(memory)
            change = f" ({_signed(study, ticks - before[memory])})" if ticks is not None and memory in before else ""
            cells.append(f"{_known_mib(study, ticks)}{change}")
        found = summarize(study)
        rows.append([name, *cells, f"{found.operations:,}", f"{found.passes:,}", found.outcome])
        before = peaks
    return aligned(rows, right=tuple(range(1, 3 + len(memories))), paint=paint)


def _weight(row: OpDifference) -> int:
    return -abs((row.second_effect_ticks or 0) - (row.first_effect_ticks or 0))


def _first_difference(first: Study, second: Study, found: MemoryComparison) -> str:
    if found.first_difference is None:
        return "; the op sequences are identical."
    mine, other = found.first_difference
    differs_at = (
        f"{first.name_of(mine)} (op {mine})" if mine != NONE else f"{second.name_of(other)} (op {other} of the second)"
    )
    return f"; first difference at {differs_at}."


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _is_used(peak: Peak) -> bool:
    return peak.state.allocated > 0


def _where(study: Study, peak: Peak) -> str:
    if not _is_used(peak):
        return "never used"
    if peak.op == NONE:
        return str(study.timeline.marks[peak.mark].moment)
    after = f", after {_short(study.name_of(peak.op - 1))}" if peak.op else ""
    return f"op {peak.op} {_short(study.name_of(peak.op))}{after}"


def _mib(study: Study, ticks: int) -> str:
    return f"{ticks / study.timeline.ticks_per_mib:.3f} MiB"


def _known_mib(study: Study, ticks: int | None) -> str:
    return "-" if ticks is None else _mib(study, ticks)


def _signed(study: Study, ticks: int) -> str:
    return f"{ticks / study.timeline.ticks_per_mib:+.3f} MiB"


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"

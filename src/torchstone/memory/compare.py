"""Two timelines -> where they start to differ, and how that changes memory."""

from collections.abc import Sequence
from difflib import SequenceMatcher

from torchstone.memory.out_of_memory import explain_last_failure
from torchstone.memory.study import UNKNOWN, Study, main_memory
from torchstone.memory.usage import find_peaks
from torchstone.record.memory import NONE, IntColumn, MemoryTimeline, Role
from torchstone.record.memory_findings import AlignedOps, Change, MemoryComparison, OpDifference, Peak, RunSummary

_LARGEST_ALIGNMENT = 20_000  # ops that differ on either side; beyond, they are one block removed and one added


def compare(first: Study, second: Study, *, memory: str = "") -> MemoryComparison:
    """Align the const-evals and the last complete pass of each graph of two runs, op by op."""
    looked_at = memory or main_memory(first.timeline)
    ours, theirs = _representative_ops(first), _representative_ops(second)
    pairs = _align([_key(first, op) for op in ours], [_key(second, op) for op in theirs])
    placed = [(NONE if a is None else ours[a], NONE if b is None else theirs[b]) for a, b in pairs]
    rows = [_difference(first, second, looked_at, mine, other) for mine, other in placed]
    changed = [row for row in rows if row.change is not Change.SAME]
    return MemoryComparison(
        memory=looked_at,
        peaks=_peaks(first, second),
        same_ops=len(rows) - len(changed),
        removed_ops=sum(row.change is Change.REMOVED for row in changed),
        added_ops=sum(row.change is Change.ADDED for row in changed),
        first_difference=_first_difference(rows),
        first_source=first.timeline.source,
        second_source=second.timeline.source,
        ticks_per_mib=first.timeline.ticks_per_mib,
        rows=_aligned(first, second, looked_at, placed, [row.text for row in rows]),
        differences=tuple(row for row in rows if row.change is not Change.SAME or _differs(row)),
    )


def summarize(study: Study) -> RunSummary:
    """The peaks of a run, and how it ended."""
    failure = explain_last_failure(study)
    return RunSummary(
        source=study.timeline.source,
        peak_ticks={peak.memory: peak.state.allocated for peak in find_peaks(study)},
        operations=len(study.timeline.ops),
        passes=study.timeline.passes,
        outcome="completed" if failure is None else f"out of memory ({failure.verdict.value.replace('_', ' ')})",
    )


def _aligned(
    first: Study, second: Study, memory: str, placed: Sequence[tuple[int, int]], texts: Sequence[str]
) -> AlignedOps:
    known: dict[str, int] = {}
    text_of = [known.setdefault(text, len(known)) for text in texts]
    return AlignedOps(
        first_ops=IntColumn.of([mine for mine, _ in placed]),
        second_ops=IntColumn.of([other for _, other in placed]),
        first_allocated=IntColumn.of([_allocated(first, memory, mine) for mine, _ in placed], width_bytes=8),
        second_allocated=IntColumn.of([_allocated(second, memory, other) for _, other in placed], width_bytes=8),
        texts=tuple(known),
        text_of=IntColumn.of(text_of),
    )


def _allocated(study: Study, memory: str, op: int) -> int:
    return NONE if op == NONE or memory not in study.readings else study.readings[memory].allocated[op]


def grown_peaks(found: MemoryComparison, *, max_growth_percent: float) -> list[tuple[Peak, Peak]]:
    """The memories whose peak grew by more than is allowed."""
    return [
        (mine, other)
        for mine, other in found.peaks
        if mine is not None
        and other is not None
        and other.state.allocated > mine.state.allocated * (1 + max_growth_percent / 100)
    ]


def _representative_ops(study: Study) -> list[int]:
    """Of each graph the const-evals, which run once, then the last complete pass without them."""
    timeline: MemoryTimeline = study.timeline
    is_eval = [run.role is Role.CONST_EVAL for run in timeline.programs]
    ops: list[int] = []
    for number, graph in enumerate(timeline.graphs):
        evals = {
            run.name: run
            for run, prepares in zip(timeline.programs, is_eval, strict=True)
            if prepares and run.graph == number and run.complete
        }
        ops += [op for name in sorted(evals) for op in range(evals[name].first_op, evals[name].end_op)]
        complete = [run for run in graph.runs if timeline.programs[run].complete] or list(graph.runs)
        run = timeline.programs[complete[-1]]
        ops += [op for op in range(run.first_op, run.end_op) if not is_eval[study.programs[op]]]
    return ops


def _key(study: Study, op: int) -> tuple[object, ...]:
    """The identity of an op across two runs: name and types, not SSA names, which one added op renumbers."""
    call = study.call(op)
    if call is None:
        return (study.name_of(op),)
    types = study.timeline.types
    shapes = tuple((types[row].text, types[row].buffer) for row in (*call.operand_types, *call.result_types))
    return (call.name, *shapes)


def _align(
    first: Sequence[tuple[object, ...]], second: Sequence[tuple[object, ...]]
) -> list[tuple[int | None, int | None]]:
    """Pairs of places in both sequences; None where one has no counterpart."""
    start = 0
    while start < min(len(first), len(second)) and first[start] == second[start]:
        start += 1
    end = 0
    while end < min(len(first), len(second)) - start and first[-1 - end] == second[-1 - end]:
        end += 1
    middle = _align_middle(first[start : len(first) - end], second[start : len(second) - end])
    pairs: list[tuple[int | None, int | None]] = [(at, at) for at in range(start)]
    pairs += [(None if a is None else a + start, None if b is None else b + start) for a, b in middle]
    return pairs + [(len(first) - end + at, len(second) - end + at) for at in range(end)]


def _align_middle(
    first: Sequence[tuple[object, ...]], second: Sequence[tuple[object, ...]]
) -> list[tuple[int | None, int | None]]:
    if max(len(first), len(second)) > _LARGEST_ALIGNMENT:
        return [(at, None) for at in range(len(first))] + [(None, at) for at in range(len(second))]
    pairs: list[tuple[int | None, int | None]] = []
    for tag, a, a_end, b, b_end in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs += zip(range(a, a_end), range(b, b_end), strict=True)
        else:
            pairs += [(at, None) for at in range(a, a_end)] + [(None, at) for at in range(b, b_end)]
    return pairs


def _difference(first: Study, second: Study, memory: str, mine: int, other: int) -> OpDifference:
    shown, op = (first, mine) if mine != NONE else (second, other)
    call = shown.call(op)
    return OpDifference(
        change=Change.ADDED if mine == NONE else Change.REMOVED if other == NONE else Change.SAME,
        name=call.name if call else shown.name_of(op),
        text=shown.name_of(op),
        first_op=mine,
        second_op=other,
        first_effect_ticks=_effect(first, memory, mine),
        second_effect_ticks=_effect(second, memory, other),
    )


def _differs(row: OpDifference) -> bool:
    both = row.first_effect_ticks, row.second_effect_ticks
    return None not in both and both[0] != both[1]


def _effect(study: Study, memory: str, op: int) -> int | None:
    if op == NONE or memory not in study.readings:
        return None
    effect = study.readings[memory].effects[op]
    return None if effect == UNKNOWN else effect


def _peaks(first: Study, second: Study) -> tuple[tuple[Peak | None, Peak | None], ...]:
    ours = {peak.memory: peak for peak in find_peaks(first)}
    theirs = {peak.memory: peak for peak in find_peaks(second)}
    return tuple((ours.get(name), theirs.get(name)) for name in dict.fromkeys((*ours, *theirs)))


def _first_difference(rows: Sequence[OpDifference]) -> tuple[int, int] | None:
    for row in rows:
        if row.change is not Change.SAME:
            return row.first_op, row.second_op
    return None

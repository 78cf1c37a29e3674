"""Memory that grows from pass to pass: how much each pass adds, whose it is, and when the device will be full."""

from collections import Counter
from itertools import pairwise
from statistics import median

from torchstone.memory.ledger import ledger_of
from torchstone.memory.study import Study, tick_bytes
from torchstone.record.memory import NONE
from torchstone.record.memory_findings import Growth, GrowthPart, LiveBuffer, Origin, PassStep

_FEWEST_PASSES = 4  # of a graph: the first one prepares weights, and two differences make no trend
_MOST_PASSES = 400  # the last ones, in which a rise is looked for
_REPEATED = 0.3  # of the differences that must be positive
_LATE = 0.2  # of the growth that must be in the second half
_STEADY = 0.8  # of the differences that must not be negative
KEPT_OUTPUTS, UPLOADS, CONST_EVALS, UNEXPLAINED = "kept outputs", "host uploads", "const-eval results", "unexplained"


def find_growth(study: Study) -> tuple[Growth, ...]:
    """The memories that grow with the passes of a graph, largest growth per pass first."""
    if study.timeline.allocations:
        return ()
    found = [
        growth
        for memory in study.readings
        if _rises(study, memory)
        for graph in range(len(study.timeline.graphs))
        if (growth := _growth_of(study, memory, graph)) is not None
    ]
    return tuple(sorted(found, key=lambda one: (-one.bytes_per_pass, one.graph)))


def _rises(study: Study, memory: str) -> bool:
    """Whether memory rises from pass to pass over all graphs, not counting the arguments of each.

    Memory that only comes and goes rises by chance between some passes of some graph, but not over the whole log.
    """
    timeline, readings, ledger = study.timeline, study.readings[memory], ledger_of(study)
    warm = sorted(run for graph in timeline.graphs for run in graph.runs[1:])[-_MOST_PASSES:]
    levels = []
    for run in warm:
        program = timeline.programs[run]
        ticks = readings.allocated[program.first_op] if program.end_op > program.first_op else NONE
        if ticks != NONE:
            own = ledger.start_of(run).arguments.values()
            levels.append(
                tick_bytes(timeline, ticks) - sum(one.bank_bytes for one in own if _lies_in(study, one, memory))
            )
    slack = tick_bytes(timeline, 1)
    steps = [after - before for before, after in pairwise(levels)]
    return bool(steps) and sum(step >= -slack for step in steps) >= _STEADY * len(steps)


def _is_trend(known: list[tuple[int, int]], steps: list[int]) -> bool:
    """Whether growth goes on: a graph that runs for the first time in between makes one step, and no trend."""
    late = known[-1][1] - known[len(known) // 2][1]
    is_steady = sum(step >= 0 for step in steps) >= _STEADY * len(steps)
    is_repeated = sum(step > 0 for step in steps) >= _REPEATED * len(steps)
    return is_steady and is_repeated and late >= _LATE * (known[-1][1] - known[0][1])


def _lies_in(study: Study, one: LiveBuffer, memory: str) -> bool:
    buffer = study.timeline.types[one.type].buffer
    return buffer is not None and buffer.memory == memory


def _growth_of(study: Study, memory: str, graph: int) -> Growth | None:
    programs, readings = study.timeline.programs, study.readings[memory]
    runs = [run for run in study.timeline.graphs[graph].runs if programs[run].end_op > programs[run].first_op]
    starts = [(run, readings.allocated[programs[run].first_op]) for run in runs]
    known = [(run, ticks) for run, ticks in starts if ticks != NONE][1:]  # the first pass prepares weights
    if len(known) < _FEWEST_PASSES - 1:
        return None
    steps = [after - before for (_, before), (_, after) in pairwise(known)]
    total = known[-1][1] - known[0][1]
    if total < 2 * max(1, len(steps) // 8) or median(steps) < 0 or not _is_trend(known, steps):
        return None
    per_pass = tick_bytes(study.timeline, total) / len(steps)
    last = programs[known[-1][0]]
    highest = max(ticks for ticks in readings.allocated[last.first_op : last.end_op])
    state = readings.of_op(last.first_op)
    room = 0 if state is None else tick_bytes(study.timeline, state.capacity - highest)
    return Growth(
        memory=memory,
        graph=graph,
        passes=len(known),
        bytes_per_pass=round(per_pass),
        parts=_parts(study, memory, known, len(steps)),
        passes_left=int(room // per_pass) if per_pass > 0 and room > 0 else None,
    )


def pass_steps(study: Study, memory: str, *, limit: int) -> tuple[PassStep, ...]:
    """The change of one memory from the start of each pass to the start of the next, with its parts."""
    if study.timeline.allocations:
        return ()
    programs, readings = study.timeline.programs, study.readings[memory]
    runs = [row for row, run in enumerate(programs) if run.parent == NONE and run.end_op > run.first_op]
    found = []
    for before, after in pairwise(runs[: limit + 1]):
        ticks = [readings.allocated[programs[run].first_op] for run in (before, after)]
        if NONE not in ticks and ticks[0] != ticks[1]:
            known = list(zip((before, after), ticks, strict=True))
            size = tick_bytes(study.timeline, ticks[1] - ticks[0])
            parts = _parts(study, memory, known, 1)
            found.append(PassStep(memory=memory, before=before, after=after, change_bytes=size, parts=parts))
    return tuple(found)


def _parts(study: Study, memory: str, known: list[tuple[int, int]], steps: int) -> tuple[GrowthPart, ...]:
    """Whose the growth is: what was live at the first and at the last start, by kind."""
    first, last = (_held(study, memory, run) for run in (known[0][0], known[-1][0]))
    change = {key: last[key] - first[key] for key in dict.fromkeys((*first, *last))}
    total = tick_bytes(study.timeline, known[-1][1] - known[0][1])
    change["", UNEXPLAINED] = total - sum(change.values())
    least = max(tick_bytes(study.timeline, 2), abs(total) // 20)
    parts = [
        GrowthPart(kind=kind, owner=owner, bytes_per_pass=round(size / steps))
        for (owner, kind), size in change.items()
        if abs(size) >= least
    ]
    return tuple(sorted(parts, key=lambda part: (-part.bytes_per_pass, part.kind)))


def _held(study: Study, memory: str, run: int) -> "Counter[tuple[str, str]]":
    start = ledger_of(study).start_of(run)
    held: Counter[tuple[str, str]] = Counter()
    for one in (*start.arguments.values(), *start.others):
        if _lies_in(study, one, memory):
            held[_owner_of(one), _kind_of(one)] += one.bank_bytes
    for found in (one for one in start.cached if one.key not in start.disputed_keys):
        for row in found.call.result_types:
            buffer = study.timeline.types[row].buffer
            if buffer is not None and buffer.memory == memory:
                held["", CONST_EVALS] += study.bank_bytes(buffer)
    return held


def _kind_of(one: LiveBuffer) -> str:
    return KEPT_OUTPUTS if one.origin is Origin.OUTPUT else UPLOADS


def _owner_of(one: LiveBuffer) -> str:
    return one.owner.partition(":")[0].removeprefix("output of ") if one.origin is Origin.OUTPUT else ""

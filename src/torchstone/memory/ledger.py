"""All passes of a timeline -> the live sets before any op, each replayed when it is asked for.

Where a source states its buffers with their lifetimes, such as a graph report of ttnn, nothing is replayed.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

import msgspec

from torchstone.memory.liveness import PassCurve, PassReplay, settled
from torchstone.memory.pass_starts import PassStart, PassStarts
from torchstone.memory.study import Study
from torchstone.memory.ttnn_report import BEFORE
from torchstone.record.memory import NONE, Allocation, Moment, Role
from torchstone.record.memory_findings import LiveBuffer, LiveSet, Origin, Peak


class Ledger:
    """The live sets of a whole timeline; passes are replayed when they are asked for."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._outputs: dict[tuple[int, int], tuple[LiveBuffer, ...]] = {}
        self._changes: dict[tuple[int, int], dict[str, int]] = {}
        self._starts = PassStarts(study, self._outputs_of, self._change_of)

    def _outputs_of(self, run: int) -> tuple[LiveBuffer, ...]:
        """The outputs of a run; equal for all complete runs of a graph, so one of them is replayed."""
        found = self._study.timeline.programs[run]
        key = (found.graph, found.end_op - found.first_op)
        if key not in self._outputs:
            replay = PassReplay(self._study, PassStart(run=run, cached=self._starts.cached_before(found.first_op)))
            replay.follow()
            self._outputs[key] = tuple(_as_output(one, found.graph) for one in replay.end())
        return self._outputs[key]

    def _change_of(self, run: int, start: PassStart) -> dict[str, int]:
        """Bytes per bank that the known buffers grow by from the start of a run to its last op, by memory."""
        found = self._study.timeline.programs[run]
        key = (found.graph, found.end_op - found.first_op)
        if key not in self._changes:
            replay = PassReplay(self._study, start)
            before = dict(replay.explained)
            replay.follow(until=found.end_op - 1)
            self._changes[key] = {name: size - before[name] for name, size in replay.explained.items()}
        return self._changes[key]

    def replay(self, run: int) -> PassReplay:
        """The replay of an outermost run, at its start."""
        return PassReplay(self._study, self._starts.of(run))

    def before(self, op: int) -> tuple[LiveSet, ...]:
        """The live sets before an op, one per memory."""
        return self.replay(self._study.outermost_run(op)).follow({op}, until=op + 1).live_sets[op]

    def at_peak(self, peak: Peak) -> LiveSet | None:
        """The live set at a peak, also where its snapshot stands between passes."""
        if peak.op != NONE:
            return next(one for one in self.before(peak.op) if one.memory == peak.memory)
        mark = self._study.timeline.marks[peak.mark]
        ops = len(self._study.timeline.ops)
        if mark.moment is Moment.BEFORE_SUBMIT and mark.next_op < ops:
            return self.replay(self._study.outermost_run(mark.next_op)).live_set(peak.memory, peak.state.allocated)
        if mark.moment is Moment.AFTER_SUBMIT and mark.next_op > 0:
            replay = self.replay(self._study.outermost_run(mark.next_op - 1))
            replay.follow()
            replay.end()
            return replay.live_set(peak.memory, peak.state.allocated)
        return None

    def start_of(self, run: int) -> PassStart:
        """What is live before the first op of a run."""
        return self._starts.of(run)


def _as_output(live: LiveBuffer, graph: int) -> LiveBuffer:
    return msgspec.structs.replace(live, origin=Origin.OUTPUT, owner=f"output of graph {graph}: {live.owner}")


_UPLOADS = ("ttnn.from_torch", "ttnn.to_device", "ttnn.as_tensor", BEFORE)


class StatedLedger:
    """The live sets of a timeline whose source states every buffer with its lifetime: nothing is replayed."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._tick_bytes = (1 << 20) / study.timeline.ticks_per_mib

    def before(self, op: int) -> tuple[LiveSet, ...]:
        """The live sets before an op, one per memory."""
        return tuple(
            settled(name, op, self.buffers(name, op), readings.allocated[op], self._tick_bytes)
            for name, readings in self._study.readings.items()
        )

    def buffers(self, memory: str, op: int) -> list[LiveBuffer]:
        """The buffers of one memory before an op, largest first; all of L1 includes the tensors there."""
        names = (memory, "L1") if memory.startswith("L1_WITH") else (memory,)
        found = [
            self._live(one)
            for one in self._study.timeline.allocations
            if one.memory in names and one.from_op <= op < one.end_op
        ]
        return sorted(found, key=lambda one: -one.bank_bytes)

    def at_peak(self, peak: Peak) -> LiveSet | None:
        """The live set at a peak."""
        return None if peak.op == NONE else next(one for one in self.before(peak.op) if one.memory == peak.memory)

    def curve(self, *, largest: int) -> PassCurve:
        """Padded and logical bytes before each op."""
        memories, ops = tuple(self._study.readings), range(len(self._study.timeline.ops))
        curve = PassCurve(0, {name: [] for name in memories}, {name: [] for name in memories}, {}, [])
        changes = self._changes(memories)
        padded, logical = dict.fromkeys(memories, 0), dict.fromkeys(memories, 0)
        biggest: list[tuple[int, int, LiveBuffer]] = []  # the live ones by size
        for op in ops:
            for sign, number, live, names in changes.get(op, ()):
                for name in names:
                    padded[name] += sign * live.padded_bytes
                    logical[name] += sign * _logical(live)
                entry = (live.padded_bytes, number, live)
                if sign > 0:
                    insort(biggest, entry, key=_rank)
                else:
                    del biggest[bisect_left(biggest, _rank(entry), key=_rank)]
            for name in memories:
                curve.padded[name].append(padded[name])
                curve.logical[name].append(logical[name])
            if largest:
                curve.largest.append(tuple(live for _, _, live in reversed(biggest[-largest:])))
        return curve

    def _changes(self, memories: tuple[str, ...]) -> dict[int, list[tuple[int, int, LiveBuffer, tuple[str, ...]]]]:
        """What comes and goes before each op, frees first: sign, number, buffer, and the memories it counts for."""
        found: dict[int, list[tuple[int, int, LiveBuffer, tuple[str, ...]]]] = {}
        totals = tuple(name for name in memories if name.startswith("L1_WITH"))
        for number, one in enumerate(self._study.timeline.allocations):
            if one.from_op < one.end_op:
                live = self._live(one)
                names = (one.memory, *totals) if one.memory == "L1" else (one.memory,)
                found.setdefault(one.from_op, []).append((1, number, live, names))
                found.setdefault(one.end_op, []).append((-1, number, live, names))
        for changes in found.values():
            changes.sort(key=lambda change: change[:2])
        return found

    def _live(self, one: Allocation) -> LiveBuffer:
        tensor = self._study.timeline.types[one.type]
        padded = tensor.buffer.padded_bytes if tensor.buffer else one.bank_bytes * self._study.banks[one.memory]
        return LiveBuffer(
            origin=stated_origin(one),
            owner=one.owner,
            value=one.value,
            op=one.made_by,
            type=one.type,
            bank_bytes=one.bank_bytes,
            padded_bytes=padded,
            logical_bytes=tensor.logical_bytes,
        )


def stated_origin(one: Allocation) -> Origin:
    """The kind of a buffer that a report states: uploads are inputs, what ops make are activations."""
    if one.owner.startswith(_UPLOADS):
        return Origin.INPUT
    return Origin.CIRCULAR_BUFFERS if not one.value and one.memory.startswith("L1_WITH") else Origin.ACTIVATION


def _rank(entry: tuple[int, int, LiveBuffer]) -> tuple[int, int]:
    return entry[:2]


def _logical(live: LiveBuffer) -> int:
    return live.padded_bytes if live.logical_bytes is None else live.logical_bytes


def ledger_of(study: Study) -> Ledger:
    """The ledger of a study, made once."""
    return study.once(Ledger, lambda: Ledger(study))


def _any_ledger(study: Study) -> Ledger | StatedLedger:
    return StatedLedger(study) if study.timeline.allocations else ledger_of(study)


def live_before(study: Study, op: int) -> tuple[LiveSet, ...]:
    """The buffers that were live before an op, one set per memory."""
    return _any_ledger(study).before(op)


def live_at_peak(study: Study, peak: Peak) -> LiveSet | None:
    """The buffers that were live at a peak; None for a peak that is not before an op, nor before or after a pass."""
    return _any_ledger(study).at_peak(peak)


def follow_all(study: Study, *, largest: int = 0) -> Iterator[PassCurve]:
    """Replay every pass in order; a pass that must look like an earlier one shares its curve.

    Passes repeat thousands of times. Two complete passes have the same curve when they run the same graph without
    nested programs, start with the same buffers, and read the same memory before each op.
    """
    if study.timeline.allocations:
        yield StatedLedger(study).curve(largest=largest)
        return
    timeline, ledger = study.timeline, ledger_of(study)
    known: dict[tuple[object, ...], PassCurve] = {}
    nested = {run.parent for run in timeline.programs if run.parent != NONE}
    snapshots = timeline.ops.snapshots.values()
    for number, run in enumerate(timeline.programs):
        if run.parent != NONE:
            continue
        start = ledger.start_of(number)
        readings = snapshots[run.first_op : run.end_op].tobytes()
        key = (run.graph, len(start.cached), start.others, run.end_op - run.first_op, hash(readings))
        if number in nested or not run.complete or key not in known:
            curve = ledger.replay(number).follow(largest=largest)
            if number not in nested and run.complete and run.role is Role.FORWARD:
                known[key] = curve
        else:
            curve = known[key]
        yield PassCurve(run.first_op, curve.padded, curve.logical, {}, curve.largest, curve.persistent)

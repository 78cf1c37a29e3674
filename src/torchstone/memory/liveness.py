"""MemoryTimeline -> the buffers that were live before an op, and their owners.

The log reports how many bytes are allocated, but names no buffers. So a pass is replayed op by op: results are
allocated, deallocates free them, views share a buffer, retained tensors stay. The text of an op does not say whether
its result is a new buffer or a view, nor whether a deallocate frees memory at once; there the measured effect of the op
(the next snapshot minus its own) decides.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from heapq import nlargest

from torchstone.memory.study import UNKNOWN, Study, tick_bytes
from torchstone.record.memory import NONE, Buffer, LiveBuffer, LiveSet, OpCall, OpFlag, Origin, ProgramRun, Role

_SIGNIFICANT_TICKS = 3  # a smaller effect cannot be distinguished from rounding, so it decides nothing


@dataclass(eq=False, slots=True)
class _TrackedBuffer:
    """A live buffer, shared by all its views."""

    live: LiveBuffer
    memory: str
    names: int = 1  # SSA values that refer to it


@dataclass(slots=True)
class _Frame:
    """The SSA values of one program run; names repeat in nested programs, so each run has its own."""

    program: int
    values: dict[str, _TrackedBuffer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PassCurve:
    """Padded and logical bytes live before each op of a pass, by memory, on one device."""

    first_op: int
    padded: dict[str, list[int]]
    logical: dict[str, list[int]]
    live_sets: dict[int, tuple[LiveSet, ...]]
    largest: list[tuple[LiveBuffer, ...]]  # the largest buffers before each op, if requested


class PassReplay:
    """Replays one pass and tracks its buffers."""

    def __init__(self, study: Study, run: int) -> None:
        self._timeline = study.timeline
        self._run = study.timeline.programs[run]
        self._owners = study.owners
        self._readings = study.readings
        self._banks = study.banks
        self._calls, self._programs, self._flags = study.calls, study.programs, study.flags
        self._tracked: list[_TrackedBuffer] = []
        self._cached: dict[str, list[_TrackedBuffer]] = {}
        self._frames = [_Frame(run)]
        self._padded = dict.fromkeys(self._readings, 0)
        self._logical = dict.fromkeys(self._readings, 0)

    def follow(self, watched: Collection[int] = (), *, largest: int = 0) -> PassCurve:
        """Replay the pass; the live sets are those before the watched ops."""
        first, end = self._run.first_op, self._run.end_op
        self._add_cached_results(before=first)
        self._add_arguments()
        curve = PassCurve(first, {name: [] for name in self._padded}, {name: [] for name in self._padded}, {}, [])
        for op in range(first, end):
            self._enter(self._programs[op], op)
            for name in self._padded:
                curve.padded[name].append(self._padded[name])
                curve.logical[name].append(self._logical[name])
            if largest:
                curve.largest.append(self._largest(largest))
            if op in watched:
                curve.live_sets[op] = tuple(self._live_set(name, op) for name in self._readings)
            call = self._calls[op]
            if call != NONE:
                self._step(op, self._timeline.calls[call])
        return curve

    # --- Live before the pass: cached const-eval results, arguments, weights of other graphs ---

    def _add_cached_results(self, *, before: int) -> None:
        for found in self._owners.cached_results:
            if found.from_op <= before and found.key not in self._cached:
                self._add_cached(found.key, found.call, found.owner)

    def _add_cached(self, key: str, call: OpCall, owner: str) -> None:
        results = []
        for value, type_row in zip(call.results, call.result_types, strict=False):
            tracked = self._track(Origin.CONST_EVAL, owner, value, type_row)
            results += [tracked] if tracked else []
        self._cached[key] = results

    def _add_arguments(self) -> None:
        """Track the arguments on the device: those in the registry, and those that ops of this pass read.

        The registry comes from a module dump, which a log may lack; the operands alone still give sizes.
        """
        graph = self._run.graph
        types = {value: one.type for value, one in self._owners.registry(graph).items()}
        for op in range(self._run.first_op, self._run.end_op):
            if self._calls[op] != NONE and self._timeline.programs[self._programs[op]].parent == NONE:
                call = self._timeline.calls[self._calls[op]]
                for value, type_row in zip(call.operands, call.operand_types, strict=False):
                    if value.startswith("%arg"):
                        types.setdefault(value, type_row)
        for value, type_row in sorted(types.items()):
            origin, name = self._owners.argument(graph, value)
            tracked = self._track(origin, name, value, type_row)
            if tracked is not None:
                self._frames[0].values[value] = tracked
        self._add_arguments_of_other_graphs({tracked.live.owner for tracked in self._tracked})

    def _add_arguments_of_other_graphs(self, known: set[str]) -> None:
        """Track the weights of graphs that ran before: they stay on the device.

        Two graphs of one model (prefill and decode) share weights, so an argument with a known name is not added twice.
        """
        for number, graph in enumerate(self._timeline.graphs):
            if number == self._run.graph or self._timeline.programs[graph.runs[0]].first_op > self._run.first_op:
                continue
            for value, argument in self._owners.registry(number).items():
                origin, name = self._owners.argument(number, value)
                if origin is not Origin.INPUT and name not in known:
                    known.add(name)
                    self._track(origin, name, value, argument.type)

    # --- Ops ---

    def _enter(self, program: int, op: int) -> None:
        """Open and close frames until the innermost one is that of the program."""
        chain = []
        while program != self._frames[0].program and program != NONE:
            chain.append(program)
            program = self._timeline.programs[program].parent
        chain.reverse()
        while len(self._frames) > 1 and [frame.program for frame in self._frames[1:]] != chain[: len(self._frames) - 1]:
            self._leave(op)
        for number in chain[len(self._frames) - 1 :]:
            self._frames.append(self._open_frame(number))

    def _open_frame(self, number: int) -> _Frame:
        run = self._timeline.programs[number]
        frame, outer = _Frame(number), self._frames[-1].values
        call = self._calls[run.parent_op] if run.parent_op != NONE else NONE
        if call != NONE and self._timeline.calls[call].operands:
            operands = enumerate(self._timeline.calls[call].operands)
            frame.values = {f"%arg{index}": outer[value] for index, value in operands if value in outer}
        elif run.role is Role.CALLED:
            frame.values = outer
        return frame

    def _leave(self, op: int) -> None:
        """Close a nested program: results of a const-eval stay in the cache under its key, its other buffers are freed.

        A const-eval that runs again under the same key replaces the cached results, as the runtime does.
        """
        frame = self._frames.pop()
        run = self._timeline.programs[frame.program]
        if run.role is not Role.CONST_EVAL:
            return
        shared = {id(tracked) for outer in self._frames for tracked in outer.values.values()}
        for tracked in list(frame.values.values()):
            if id(tracked) not in shared:
                self._release(tracked)
        found = next((one for one in self._owners.cached_results if one.run == frame.program), None)
        if found is not None and op >= run.end_op:
            for tracked in self._cached.get(found.key, []):
                self._release(tracked)
            self._add_cached(found.key, found.call, found.owner)
            self._bind(run, found.key)

    def _bind(self, run: ProgramRun, key: str) -> None:
        if run.parent_op != NONE and self._calls[run.parent_op] != NONE:
            call = self._timeline.calls[self._calls[run.parent_op]]
            self._frames[-1].values |= dict(zip(call.results, self._cached[key], strict=False))

    def _step(self, op: int, call: OpCall) -> None:
        values = self._frames[-1].values
        if call.name.endswith(".deallocate"):
            self._deallocate(op, call, values)
        elif call.name.endswith(".load_cached"):
            self._load(op, call, values)
        elif (shared := self._shared_with(op, call, values)) is not None:
            shared.names += 1
            values[call.results[0]] = shared
        else:
            for value, type_row in zip(call.results, call.result_types, strict=False):
                tracked = self._track(Origin.ACTIVATION, f"{call.name} {value}", value, type_row, op=op)
                if tracked is not None:
                    values[value] = tracked

    def _load(self, op: int, call: OpCall, values: dict[str, _TrackedBuffer]) -> None:
        if self._flags[op] & OpFlag.CACHE_MISS:
            return  # the const-eval runs next; its results are tracked when it ends
        key = self._owners.hit_key(op, call)
        if key not in self._cached:
            self._add_cached(key, call, self._owners.cached(call, self._run.graph))
        values |= dict(zip(call.results, self._cached[key], strict=False))

    def _deallocate(self, op: int, call: OpCall, values: dict[str, _TrackedBuffer]) -> None:
        tracked = values.get(call.operands[0]) if call.operands else None
        if tracked is None or self._flags[op] & OpFlag.RETAINED or tracked.live.origin is not Origin.ACTIVATION:
            return
        expected = self._ticks(tracked.live.bank_bytes)
        effect = self._readings[tracked.memory].effects[op]
        del values[call.operands[0]]
        tracked.names -= 1
        # A deallocate that did not free at least half of the buffer's size freed nothing: something that the log does
        # not show (a view in another program, the host) still refers to it.
        is_shared = effect != UNKNOWN and effect > -expected // 2 and expected >= _SIGNIFICANT_TICKS
        if tracked.names == 0 and not is_shared:
            self._untrack(tracked)

    def _shared_with(self, op: int, call: OpCall, values: dict[str, _TrackedBuffer]) -> _TrackedBuffer | None:
        """The operand whose buffer the result reuses, when the op allocated none: a view, or an in-place op.

        Such an operand has the size of the result. If memory grew by less than half of that size, the op allocated
        nothing. Where the effect is unknown or too small to measure, only a reshape that keeps the last dimension
        counts as a view, since the runtime need not move its elements.
        """
        if len(call.results) != 1 or len(call.result_types) != 1:
            return None
        buffer = self._timeline.types[call.result_types[0]].buffer
        if buffer is None or buffer.memory not in self._readings:
            return None
        size = self._bank_bytes(buffer)
        alike = (values[value] for value in call.operands if value in values)
        same = next(
            (tracked for tracked in alike if tracked.memory == buffer.memory and tracked.live.bank_bytes == size), None
        )
        if same is None:
            return None
        effect, expected = self._readings[buffer.memory].effects[op], self._ticks(size)
        if effect == UNKNOWN or expected < _SIGNIFICANT_TICKS:
            return same if call.name.endswith(".reshape") and self._same_last_dim(call) else None
        return same if effect < expected // 2 else None

    def _same_last_dim(self, call: OpCall) -> bool:
        before = self._timeline.types[call.operand_types[0]].shape if call.operand_types else None
        after = self._timeline.types[call.result_types[0]].shape
        return bool(before) and bool(after) and before[-1] == after[-1]  # type: ignore[index] # both are there

    # --- Buffers ---

    def _track(self, origin: Origin, owner: str, value: str, type_row: int, *, op: int = NONE) -> _TrackedBuffer | None:
        tensor = self._timeline.types[type_row]
        buffer = tensor.buffer
        if buffer is None or buffer.memory not in self._readings:
            return None
        live = LiveBuffer(
            origin=origin,
            owner=owner,
            value=value,
            op=op,
            type=type_row,
            bank_bytes=self._bank_bytes(buffer),
            padded_bytes=buffer.padded_bytes,
            logical_bytes=tensor.logical_bytes,
        )
        tracked = _TrackedBuffer(live, buffer.memory)
        self._tracked.append(tracked)
        self._count(tracked, 1)
        return tracked

    def _release(self, tracked: _TrackedBuffer) -> None:
        if tracked in self._tracked:
            self._untrack(tracked)

    def _untrack(self, tracked: _TrackedBuffer) -> None:
        self._tracked.remove(tracked)
        self._count(tracked, -1)

    def _count(self, tracked: _TrackedBuffer, sign: int) -> None:
        live = tracked.live
        self._padded[tracked.memory] += sign * live.padded_bytes
        self._logical[tracked.memory] += sign * (
            live.padded_bytes if live.logical_bytes is None else live.logical_bytes
        )

    def _bank_bytes(self, buffer: Buffer) -> int:
        return buffer.bank_bytes(
            banks=self._banks[buffer.memory], row_alignment_bytes=self._timeline.row_alignment_bytes
        )

    def _ticks(self, size_bytes: int) -> int:
        return size_bytes * self._timeline.ticks_per_mib >> 20

    def _largest(self, count: int) -> tuple[LiveBuffer, ...]:
        return tuple(nlargest(count, (tracked.live for tracked in self._tracked), key=lambda live: live.padded_bytes))

    def _live_set(self, memory: str, op: int) -> LiveSet:
        state = self._readings[memory].of_op(op)
        buffers = sorted(
            (tracked.live for tracked in self._tracked if tracked.memory == memory), key=lambda one: -one.bank_bytes
        )
        measured = 0 if state is None else tick_bytes(self._timeline, state.allocated)
        return LiveSet(memory=memory, op=op, measured_bytes=measured, buffers=tuple(buffers))


def live_before(study: Study, op: int) -> tuple[LiveSet, ...]:
    """The buffers that were live before an op, one set per memory."""
    return PassReplay(study, study.outermost_run(op)).follow({op}).live_sets[op]


def follow_all(study: Study, *, largest: int = 0) -> Iterator[PassCurve]:
    """Replay every pass in order; a pass that must look like an earlier one shares its curve.

    Passes repeat thousands of times. Two complete passes have the same curve when they run the same graph without
    nested programs, and when the same const-eval results and the same other graphs' weights were live at their start.
    """
    timeline = study.timeline
    known: dict[tuple[int, ...], PassCurve] = {}
    settled = sorted(found.from_op for found in study.owners.cached_results)
    started = sorted(timeline.programs[graph.runs[0]].first_op for graph in timeline.graphs)
    nested = {run.parent for run in timeline.programs if run.parent != NONE}
    for number, run in enumerate(timeline.programs):
        if run.parent != NONE:
            continue
        there = bisect_right(settled, run.first_op), bisect_right(started, run.first_op)
        key = (run.graph, run.end_op - run.first_op, *there)
        if number in nested or not run.complete or key not in known:
            curve = PassReplay(study, number).follow(largest=largest)
            if number not in nested and run.complete and run.role is Role.FORWARD:
                known[key] = curve
        else:
            curve = known[key]
        yield PassCurve(run.first_op, curve.padded, curve.logical, {}, curve.largest)

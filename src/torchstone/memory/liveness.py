"""MemoryTimeline -> what was alive before an op, and whose it was.

The log names no buffers, so they are followed through the ops of a pass: results are born, deallocates end them, views
share a buffer, retained tensors stay. The measured effect of each op decides where the text alone cannot.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from heapq import nlargest

from torchstone.memory.study import UNKNOWN, Study, tick_bytes
from torchstone.record.memory import NONE, Buffer, LiveBuffer, LiveSet, OpCall, OpFlag, Origin, ProgramRun, Role

_TELLING_TICKS = 3  # an effect this large can be told from rounding


@dataclass(eq=False, slots=True)
class _Held:
    """A buffer, shared by all its views."""

    live: LiveBuffer
    memory: str
    names: int = 1


@dataclass(slots=True)
class _Frame:
    """The values of one program run."""

    program: int
    values: dict[str, _Held] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PassCurve:
    """Padded and logical bytes alive before each op of a pass, by memory, on one device."""

    first_op: int
    padded: dict[str, list[int]]
    logical: dict[str, list[int]]
    live_sets: dict[int, tuple[LiveSet, ...]]
    largest: list[tuple[LiveBuffer, ...]]  # the largest buffers before each op, if asked for


class PassReplay:
    """Follows the buffers of one pass."""

    def __init__(self, study: Study, run: int) -> None:
        self._timeline = study.timeline
        self._run = study.timeline.programs[run]
        self._owners = study.owners
        self._readings = study.readings
        self._banks = study.banks
        self._calls, self._programs, self._flags = study.calls, study.programs, study.flags
        self._held: list[_Held] = []
        self._cached: dict[str, list[_Held]] = {}
        self._frames = [_Frame(run)]
        self._padded = dict.fromkeys(self._readings, 0)
        self._logical = dict.fromkeys(self._readings, 0)

    def follow(self, watched: Collection[int] = (), *, largest: int = 0) -> PassCurve:
        """Run through the pass; the live sets are those before the watched ops."""
        first, end = self._run.first_op, self._run.end_op
        self._hold_cached(before=first)
        self._hold_arguments()
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

    # what is there before the pass

    def _hold_cached(self, *, before: int) -> None:
        for found in self._owners.cached_results:
            if found.from_op <= before and found.key not in self._cached:
                self._keep_cached(found.key, found.call, found.owner)

    def _keep_cached(self, key: str, call: OpCall, owner: str) -> None:
        kept = []
        for value, type_row in zip(call.results, call.result_types, strict=False):
            held = self._hold(Origin.CONST_EVAL, owner, value, type_row)
            kept += [held] if held else []
        self._cached[key] = kept

    def _hold_arguments(self) -> None:
        """The arguments on the device: those the registry places there, and those that ops of this pass use."""
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
            held = self._hold(origin, name, value, type_row)
            if held is not None:
                self._frames[0].values[value] = held
        self._hold_arguments_of_others({held.live.owner for held in self._held})

    def _hold_arguments_of_others(self, known: set[str]) -> None:
        """Weights of graphs that ran before stay on the device; the same name is the same weight."""
        for number, graph in enumerate(self._timeline.graphs):
            if number == self._run.graph or self._timeline.programs[graph.runs[0]].first_op > self._run.first_op:
                continue
            for value, argument in self._owners.registry(number).items():
                origin, name = self._owners.argument(number, value)
                if origin is not Origin.INPUT and name not in known:
                    known.add(name)
                    self._hold(origin, name, value, argument.type)

    # ops

    def _enter(self, program: int, op: int) -> None:
        """Open and close frames until the innermost is that of the program."""
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
        """A nested program ended: what a const-eval made is kept under its key, all else of it is gone."""
        frame = self._frames.pop()
        run = self._timeline.programs[frame.program]
        if run.role is not Role.CONST_EVAL:
            return
        shared = {id(held) for outer in self._frames for held in outer.values.values()}
        for held in list(frame.values.values()):
            if id(held) not in shared:
                self._release(held)
        found = next((one for one in self._owners.cached_results if one.run == frame.program), None)
        if found is not None and op >= run.end_op:
            for held in self._cached.get(found.key, []):
                self._release(held)
            self._keep_cached(found.key, found.call, found.owner)
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
                held = self._hold(Origin.ACTIVATION, f"{call.name} {value}", value, type_row, op=op)
                if held is not None:
                    values[value] = held

    def _load(self, op: int, call: OpCall, values: dict[str, _Held]) -> None:
        if self._flags[op] & OpFlag.CACHE_MISS:
            return  # the const-eval runs now, and leaves its results when it ends
        key = self._owners.hit_key(op, call)
        if key not in self._cached:
            self._keep_cached(key, call, self._owners.cached(call, self._run.graph))
        values |= dict(zip(call.results, self._cached[key], strict=False))

    def _deallocate(self, op: int, call: OpCall, values: dict[str, _Held]) -> None:
        held = values.get(call.operands[0]) if call.operands else None
        if held is None or self._flags[op] & OpFlag.RETAINED or held.live.origin is not Origin.ACTIVATION:
            return
        expected = self._ticks(held.live.bank_bytes)
        effect = self._readings[held.memory].effects[op]
        del values[call.operands[0]]
        held.names -= 1
        is_held_elsewhere = effect != UNKNOWN and effect > -expected // 2 and expected >= _TELLING_TICKS
        if held.names == 0 and not is_held_elsewhere:
            self._forget(held)

    def _shared_with(self, op: int, call: OpCall, values: dict[str, _Held]) -> _Held | None:
        """The operand whose buffer the result uses, when the op made none: a view, or work in place."""
        if len(call.results) != 1 or len(call.result_types) != 1:
            return None
        buffer = self._timeline.types[call.result_types[0]].buffer
        if buffer is None or buffer.memory not in self._readings:
            return None
        size = self._bank_bytes(buffer)
        alike = (values[value] for value in call.operands if value in values)
        same = next((held for held in alike if held.memory == buffer.memory and held.live.bank_bytes == size), None)
        if same is None:
            return None
        effect, expected = self._readings[buffer.memory].effects[op], self._ticks(size)
        if effect == UNKNOWN or expected < _TELLING_TICKS:
            return same if call.name.endswith(".reshape") and self._same_last_dim(call) else None
        return same if effect < expected // 2 else None

    def _same_last_dim(self, call: OpCall) -> bool:
        before = self._timeline.types[call.operand_types[0]].shape if call.operand_types else None
        after = self._timeline.types[call.result_types[0]].shape
        return bool(before) and bool(after) and before[-1] == after[-1]  # type: ignore[index] # both are there

    # buffers

    def _hold(self, origin: Origin, owner: str, value: str, type_row: int, *, op: int = NONE) -> _Held | None:
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
        held = _Held(live, buffer.memory)
        self._held.append(held)
        self._count(held, 1)
        return held

    def _release(self, held: _Held) -> None:
        if held in self._held:
            self._forget(held)

    def _forget(self, held: _Held) -> None:
        self._held.remove(held)
        self._count(held, -1)

    def _count(self, held: _Held, sign: int) -> None:
        live = held.live
        self._padded[held.memory] += sign * live.padded_bytes
        self._logical[held.memory] += sign * (live.padded_bytes if live.logical_bytes is None else live.logical_bytes)

    def _bank_bytes(self, buffer: Buffer) -> int:
        return buffer.bank_bytes(
            banks=self._banks[buffer.memory], row_alignment_bytes=self._timeline.row_alignment_bytes
        )

    def _ticks(self, size_bytes: int) -> int:
        return size_bytes * self._timeline.ticks_per_mib >> 20

    def _largest(self, count: int) -> tuple[LiveBuffer, ...]:
        return tuple(nlargest(count, (held.live for held in self._held), key=lambda live: live.padded_bytes))

    def _live_set(self, memory: str, op: int) -> LiveSet:
        state = self._readings[memory].of_op(op)
        buffers = sorted((held.live for held in self._held if held.memory == memory), key=lambda one: -one.bank_bytes)
        measured = 0 if state is None else tick_bytes(self._timeline, state.allocated)
        return LiveSet(memory=memory, op=op, measured_bytes=measured, buffers=tuple(buffers))


def live_before(study: Study, op: int) -> tuple[LiveSet, ...]:
    """What was alive before an op, one set per memory."""
    return PassReplay(study, study.outermost_run(op)).follow({op}).live_sets[op]


def follow_all(study: Study, *, largest: int = 0) -> Iterator[PassCurve]:
    """Every pass in order; one like an earlier pass (graph, weights there, nothing nested) shares its curve."""
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

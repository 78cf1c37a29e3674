"""One pass of a timeline -> the buffers that were live before each op, their owners, and what has no owner.

The log reports how many bytes are allocated, but names no buffers. So a pass is replayed op by op: results are
allocated, deallocates free them, views share a buffer, retained tensors stay. The text of an op does not say whether
its result is a new buffer or a view, nor whether a deallocate frees memory at once; there the measured effect of the op
(the next snapshot minus its own) decides.

A live set always balances against the reading of its snapshot. Where the buffers that the replay believes in are more
than the device reported, the replay is wrong: they are withdrawn, and the set says why.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import combinations
from typing import NamedTuple

import msgspec

from torchstone.memory.pass_starts import PassStart, make_buffer
from torchstone.memory.study import UNKNOWN, CachedResults, Study
from torchstone.record.memory import NONE, OpCall, OpFlag, ProgramRun, Role
from torchstone.record.memory_findings import LiveBuffer, LiveSet, Origin
from torchstone.units import show_bytes

_SMALL_EXCESS_TICKS = 8  # up to this excess, one buffer is withdrawn; beyond, all of them
_NAMED_TICKS = 2  # from this much unexplained memory on, its reason is given
_ROUNDING = 0.5001  # of a tick; a tie (62.5) may be printed as either neighbour
PERSISTENT = (Origin.PARAMETER, Origin.CONSTANT, Origin.CONST_EVAL, Origin.KV_CACHE)
_MOST_RESULTS = 8  # of an op whose combinations are tried


@dataclass(eq=False, slots=True)
class TrackedBuffer:
    """A live buffer, shared by all its views."""

    live: LiveBuffer
    memory: str
    names: int = 1  # SSA values that refer to it
    is_disputed: bool = False  # explanations without it fit all readings, too


class BufferEvent(NamedTuple):
    """A buffer that comes or goes while an op runs."""

    op: int
    sign: int  # 1: allocated, -1: freed
    tracked: TrackedBuffer


@dataclass(slots=True)
class _Frame:
    """The SSA values of one program run; names repeat in nested programs, so each run has its own."""

    program: int
    values: dict[str, TrackedBuffer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PassCurve:
    """Padded and logical bytes live before each op of a pass, by memory, on one device; None where they are unknown."""

    first_op: int
    padded: dict[str, list[int | None]]
    logical: dict[str, list[int | None]]
    live_sets: dict[int, tuple[LiveSet, ...]]
    largest: list[tuple[LiveBuffer, ...]]  # the largest buffers before each op, if requested
    persistent: dict[str, list[int | None]] = field(default_factory=dict)  # bytes per bank of weights and caches


class PassReplay:
    """Replays one outermost run and tracks its buffers."""

    def __init__(self, study: Study, start: PassStart) -> None:
        self._study, self._start = study, start
        self._timeline = study.timeline
        self._run = study.timeline.programs[start.run]
        self._owners = study.owners
        self._readings = study.readings
        self._calls, self._programs, self._flags = study.calls, study.programs, study.flags
        self._tick_bytes = (1 << 20) / study.timeline.ticks_per_mib
        self._tracked: dict[TrackedBuffer, None] = {}
        self._cached: dict[str, list[TrackedBuffer | None]] = {}
        self._frames = [_Frame(start.run)]
        self._at = self._run.first_op  # the op during which buffers come and go
        self.events: list[BufferEvent] = []  # of the ops that were replayed
        self._padded = dict.fromkeys(self._readings, 0)
        self._logical = dict.fromkeys(self._readings, 0)
        self.explained = dict.fromkeys(self._readings, 0)  # bytes per bank of the buffers that are live now
        self._persistent = dict.fromkeys(self._readings, 0)
        self._begin()

    def _begin(self) -> None:
        for found in self._start.cached:
            for tracked in self._add_cached(found):
                if tracked is not None and found.key in self._start.disputed_keys:
                    tracked.is_disputed = True
        for value, live in self._start.arguments.items():
            self._frames[0].values[value] = self._track(live)
        for live in self._start.others:
            self._track(live)
        for live in self._start.disputed:
            self._track(live).is_disputed = True
        self.events = []

    @property
    def tracked(self) -> tuple[TrackedBuffer, ...]:
        """The buffers that are live now, in the order in which they were allocated as far as that is known."""
        return tuple(self._tracked)

    def follow(self, watched: Collection[int] = (), *, largest: int = 0, until: int | None = None) -> PassCurve:
        """Replay the run, or its ops before `until`; the live sets are those before the watched ops."""
        first, end = self._run.first_op, self._run.end_op if until is None else until
        self._adopt_unborn(first, self._run.end_op)
        empty: tuple[dict[str, list[int | None]], ...] = tuple({name: [] for name in self._padded} for _ in range(3))
        curve = PassCurve(first, empty[0], empty[1], {}, [], empty[2])
        self.events = []
        for op in range(first, end):
            self._at = op - 1  # what a nested program frees when it ends is gone before this op
            self._enter(self._programs[op], op)
            self._at = op
            for name in self._padded:
                known = self._fits(name, op)
                curve.padded[name].append(self._padded[name] if known else None)
                curve.logical[name].append(self._logical[name] if known else None)
                curve.persistent[name].append(self._persistent[name] if known else None)
            if largest:
                curve.largest.append(self._largest(largest))
            if op in watched:
                curve.live_sets[op] = tuple(
                    self.live_set(name, readings.allocated[op], op) for name, readings in self._readings.items()
                )
            call = self._calls[op]
            if call != NONE:
                self._step(op, self._timeline.calls[call])
        return curve

    def end(self) -> tuple[LiveBuffer, ...]:
        """After `follow`: close the run. The activations that are left are what it returns."""
        self._enter(self._start.run, self._run.end_op)
        left = [one for one in self._tracked if one.live.origin is Origin.ACTIVATION]
        for tracked in left:
            if tracked.names <= 0:
                self._untrack(tracked)
        return tuple(one.live for one in left if one.names > 0)

    # --- Nested programs ---

    def _enter(self, program: int, op: int) -> None:
        """Open and close frames until the innermost one is that of the program."""
        if program == self._frames[-1].program:
            return
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
        call = self._call_of(run)
        if call is not None and call.operands:
            operands = enumerate(call.operands)
            frame.values = {f"%arg{index}": outer[value] for index, value in operands if value in outer}
        elif run.role is Role.CALLED:
            frame.values = outer
        return frame

    def _leave(self, op: int) -> None:
        """Close a nested program: what it returns goes to the op that called it, its other buffers are freed.

        Results of a const-eval stay in the cache under its key. One that runs again under the same key replaces the
        cached results, as the runtime does.
        """
        frame = self._frames.pop()
        run = self._timeline.programs[frame.program]
        call = self._call_of(run)
        if frame.values is self._frames[-1].values:
            return
        shared = {tracked for outer in self._frames for tracked in outer.values.values()}
        own = [tracked for tracked in dict.fromkeys(frame.values.values()) if tracked not in shared]
        given = list(frame.values.values())
        results: list[TrackedBuffer | None] = []
        if run.role is Role.CONST_EVAL and op >= run.end_op:
            found = self._owners.cached_by_run.get(frame.program)
            if found is not None:
                for old in self._cached.get(found.key, []):
                    self._release(old)
                results = self._add_cached(found, made=own, given=given)
        elif call is not None and run.role is Role.CALLED:
            results = self._claim(call, made=own, given=given)
        self._bind(call.results if call is not None else (), results)
        for tracked in own:
            if tracked not in results:
                self._release(tracked)

    def _call_of(self, run: ProgramRun) -> OpCall | None:
        row = self._calls[run.parent_op] if run.parent_op != NONE else NONE
        return None if row == NONE else self._timeline.calls[row]

    def _bind(self, names: tuple[str, ...], results: list[TrackedBuffer | None]) -> None:
        for name, tracked in zip(names, results, strict=False):
            if tracked is not None:
                self._frames[-1].values[name] = tracked

    def _claim(
        self, call: OpCall, *, made: list[TrackedBuffer], given: list[TrackedBuffer]
    ) -> list[TrackedBuffer | None]:
        """The buffers that a nested program returns: newest of the same size among its own, else one it was given."""
        results: list[TrackedBuffer | None] = []
        free = list(reversed(made))
        for row in call.result_types:
            template = make_buffer(self._study, Origin.ACTIVATION, "", "", row)
            if template is None:
                results.append(None)
                continue
            mine = next((one for one in free if _alike(one, template)), None)
            if mine is not None:
                free.remove(mine)
            results.append(mine or next((one for one in given if _alike(one, template)), None))
        return results

    # --- Cached results ---

    def _add_cached(
        self,
        found: CachedResults,
        *,
        made: list[TrackedBuffer] | None = None,
        given: list[TrackedBuffer] | None = None,
    ) -> list[TrackedBuffer | None]:
        claimed = self._claim(found.call, made=made or [], given=given or [])
        results: list[TrackedBuffer | None] = []
        for value, row, old in zip(found.call.results, found.call.result_types, claimed, strict=False):
            live = make_buffer(self._study, Origin.CONST_EVAL, found.owner, value, row)
            if live is None:
                results.append(None)
            elif old is not None and old.live.origin is Origin.ACTIVATION:
                self._count(old, -1)
                old.live = live
                self._count(old, 1)
                results.append(old)
            elif old is not None:
                old.names += 1
                results.append(old)
            else:
                results.append(self._track(live))
        self._cached[found.key] = results
        return results

    def _load(self, op: int, call: OpCall) -> None:
        key = self._owners.hit_key(op, call)
        if self._flags[op] & OpFlag.CACHE_MISS and op in self._callers:
            return  # the const-eval runs next; its results are tracked when it ends
        if key not in self._cached:
            owner = self._owners.cached(call, self._run.graph)
            self._add_cached(CachedResults(NONE, op, call, owner, key))
        self._bind(call.results, self._cached[key])

    @property
    def _callers(self) -> set[int]:
        return self._study.calling_ops

    # --- Ops ---

    def _step(self, op: int, call: OpCall) -> None:
        if call.name.endswith(".deallocate"):
            self._deallocate(op, call)
        elif call.name.endswith(".load_cached"):
            self._load(op, call)
        elif self._flags[op] & OpFlag.UNREAD:
            self._free_unread(op)
        elif op not in self._callers and call.results:
            for memory in self._readings:
                self._produce(op, call, memory)

    def _produce(self, op: int, call: OpCall, memory: str) -> None:
        """Allocate the results of an op in one memory, as far as the measured effect says that it allocated them."""
        made = [
            live
            for value, row in zip(call.results, call.result_types, strict=False)
            if (live := make_buffer(self._study, Origin.ACTIVATION, f"{call.name} {value}", value, row, op=op))
            and self._memory(live) == memory
        ]
        if not made:
            return
        values = self._frames[-1].values
        operands = [values[value] for value in call.operands if value in values and values[value].memory == memory]
        fresh = self._allocated(op, call, memory, made, operands)
        for live in made:
            if live in fresh:
                values[live.value] = self._track(live)
            elif (shared := _shared_with(live, operands)) is not None:
                shared.names += 1
                values[live.value] = shared

    def _allocated(
        self, op: int, call: OpCall, memory: str, made: list[LiveBuffer], operands: list[TrackedBuffer]
    ) -> list[LiveBuffer]:
        """Which results are new buffers; the others are views of an operand, or written in place."""
        effect = self._effect(op, memory)
        total = sum(live.bank_bytes for live in made)
        like = [one for one in operands if any(_alike(one, live) for live in made)]
        if effect == UNKNOWN or (effect == 0 and total < self._tick_bytes):
            is_view = call.name.endswith(".reshape") and like and self._same_last_dim(call)
            return [] if is_view else made
        replaced = self._replaced_bytes(op, memory)
        if self._is_effect(effect, total) or (replaced and self._is_effect(effect, total - replaced)):
            return made
        if effect == 0:
            return [] if operands else made
        for count in range(1, len(made)) if len(made) <= _MOST_RESULTS else ():
            for some in combinations(made, count):
                if self._is_effect(effect, sum(live.bank_bytes for live in some)):
                    return list(some)
        consumed = next(
            (one for one in operands if self._is_effect(effect, total - one.live.bank_bytes) and one.names == 1), None
        )
        if consumed is not None and consumed.live.origin is Origin.ACTIVATION:
            self._release(consumed)  # the op freed its operand, or wrote its result over it
            return made
        # Both readings are rounded: with more than a tick less than their size, the results cannot all be new.
        is_enough = (effect + 2 * _ROUNDING) * self._tick_bytes >= total
        return made if (effect > 0 and is_enough) or not like else []

    def _effect(self, op: int, memory: str) -> int:
        """The measured effect; unknown for the last op of a pass, where the host works before the next reading."""
        is_last = op == self._run.end_op - 1 and op not in self._study.closing_ops
        return UNKNOWN if is_last else self._readings[memory].effects[op]

    def _replaced_bytes(self, op: int, memory: str) -> int:
        """What goes right behind the last op of a const-eval that runs again: the results of the time before."""
        run = self._timeline.programs[self._programs[op]]
        if run.role is not Role.CONST_EVAL or op != run.end_op - 1 or len(self._frames) == 1:
            return 0
        found = self._owners.cached_by_run.get(self._frames[-1].program)
        old = self._cached.get(found.key, ()) if found is not None else ()
        return sum(one.live.bank_bytes for one in old if one is not None and one.memory == memory)

    def _is_effect(self, ticks: int, size_bytes: int) -> bool:
        """Whether a change of this size shows as this number of ticks: both readings are rounded."""
        return abs(ticks - size_bytes / self._tick_bytes) < 1

    def _deallocate(self, op: int, call: OpCall) -> None:
        values = self._frames[-1].values
        tracked = values.get(call.operands[0]) if call.operands else None
        if tracked is None or self._flags[op] & OpFlag.RETAINED:
            return
        effect = self._effect(op, tracked.memory)
        size = tracked.live.bank_bytes
        del values[call.operands[0]]
        tracked.names -= 1
        is_seen = effect not in (UNKNOWN, 0) and self._is_effect(effect, -size)
        # A deallocate without an effect freed nothing: something that the log does not show (a view in another
        # program, the host) still refers to the buffer. Below the resolution of the log, the names decide.
        is_shared = effect != UNKNOWN and effect > -1 and size >= self._tick_bytes
        is_unsure = tracked.live.origin is not Origin.ACTIVATION and not is_seen
        if is_seen or (tracked.names <= 0 and not is_shared and not is_unsure):
            self._release(tracked)  # it may be gone already, where lines are missing
        elif tracked.names <= 0 and tracked.live.origin is Origin.ACTIVATION:
            tracked.is_disputed = True  # or it was gone already, and memory that no line names took its place

    def _free_unread(self, op: int) -> None:
        """An op that could not be read, and after which there is less memory: it freed the tensor of that size.

        Of several, it is one that no later op of the run reads; where all are read, nothing is known.
        """
        for memory in self._readings:
            effect = self._effect(op, memory)
            if effect == UNKNOWN or effect >= 0:
                continue
            values = self._frames[-1].values
            fitting = [
                value
                for value, one in values.items()
                if one.memory == memory
                and one.live.origin is Origin.ACTIVATION
                and self._is_effect(effect, -one.live.bank_bytes)
            ]
            later = self._values_after(op) if fitting else set()
            gone = next((value for value in fitting if value not in later), None)
            if gone is not None:
                self._release(values.pop(gone))

    def _values_after(self, op: int) -> set[str]:
        run = self._programs[op]
        rows = {self._calls[one] for one in range(op + 1, self._run.end_op) if self._programs[one] == run} - {NONE}
        return {value for row in rows for value in self._timeline.calls[row].operands}

    def _same_last_dim(self, call: OpCall) -> bool:
        before = self._timeline.types[call.operand_types[0]].shape if call.operand_types else None
        after = self._timeline.types[call.result_types[0]].shape
        return bool(before) and bool(after) and before[-1] == after[-1]  # type: ignore[index] # both are there

    def _adopt_unborn(self, first: int, end: int) -> None:
        """Track values of the run that are used but never made, because their ops are before the log begins.

        Where an op that could not be read comes before the first use, the value may be younger than the run: it stays
        unexplained.
        """
        if self._run.complete:
            return
        known = set(self._frames[0].values)
        for op in range(first, end):
            if self._calls[op] == NONE or self._flags[op] & OpFlag.UNREAD:
                return
            if self._programs[op] != self._start.run:
                continue
            call = self._timeline.calls[self._calls[op]]
            for value, row in zip(call.operands, call.operand_types, strict=False):
                if value not in known and not value.startswith("%arg"):
                    owner = f"an op before the log begins, {value}"
                    live = make_buffer(self._study, Origin.ACTIVATION, owner, value, row)
                    if live is not None:
                        self._frames[0].values[value] = self._track(live)
                known.add(value)
            known.update(call.results)

    # --- Buffers ---

    def _track(self, live: LiveBuffer) -> TrackedBuffer:
        tracked = TrackedBuffer(live, self._memory(live))
        self._tracked[tracked] = None
        self.events.append(BufferEvent(self._at, 1, tracked))
        self._count(tracked, 1)
        return tracked

    def _memory(self, live: LiveBuffer) -> str:
        buffer = self._timeline.types[live.type].buffer
        assert buffer is not None  # noqa: S101 - only buffers are tracked
        return buffer.memory

    def _release(self, tracked: TrackedBuffer | None) -> None:
        if tracked is not None and tracked in self._tracked:
            self._untrack(tracked)

    def _untrack(self, tracked: TrackedBuffer) -> None:
        del self._tracked[tracked]
        self.events.append(BufferEvent(self._at, -1, tracked))
        self._count(tracked, -1)

    def _count(self, tracked: TrackedBuffer, sign: int) -> None:
        live = tracked.live
        self.explained[tracked.memory] += sign * live.bank_bytes
        if live.origin in PERSISTENT:
            self._persistent[tracked.memory] += sign * live.bank_bytes
        self._padded[tracked.memory] += sign * live.padded_bytes
        self._logical[tracked.memory] += sign * (
            live.padded_bytes if live.logical_bytes is None else live.logical_bytes
        )

    def _largest(self, count: int) -> tuple[LiveBuffer, ...]:
        return tuple(nlargest(count, (tracked.live for tracked in self._tracked), key=lambda live: live.padded_bytes))

    # --- Live sets ---

    def _fits(self, memory: str, op: int) -> bool:
        ticks = self._readings[memory].allocated[op]
        return ticks != NONE and self.explained[memory] <= (ticks + _ROUNDING) * self._tick_bytes

    def live_set(self, memory: str, ticks: int, op: int = NONE) -> LiveSet:
        """The buffers that are live now, against a reading."""
        found = [tracked for tracked in self._tracked if tracked.memory == memory]
        buffers = sorted((one.live for one in found if not one.is_disputed), key=lambda one: -one.bank_bytes)
        live = settled(memory, op, buffers, ticks, self._tick_bytes)
        disputed = [one.live for one in found if one.is_disputed]
        doubt = _dispute(disputed) if disputed else ""
        if not doubt and (live.unexplained_bytes or 0) > _NAMED_TICKS * self._tick_bytes:
            doubt = self._start.unnamed
        return live if live.doubt or not doubt else msgspec.structs.replace(live, doubt=doubt)


def settled(memory: str, op: int, buffers: list[LiveBuffer], ticks: int, tick_bytes: float) -> LiveSet:
    """A live set that balances: buffers that the reading contradicts are withdrawn, with the reason.

    A reading is rounded to a tick, so the true value lies within half a tick of it; where the buffers do, too, they are
    taken as the exact value.
    """
    if ticks == NONE:
        doubt = "the log has no reading before this op"
        return LiveSet(memory=memory, op=op, measured_bytes=None, buffers=(), doubt=doubt)
    measured, explained = round(ticks * tick_bytes), sum(one.bank_bytes for one in buffers)
    if abs(explained - ticks * tick_bytes) <= _ROUNDING * tick_bytes:
        return LiveSet(memory=memory, op=op, measured_bytes=explained, buffers=tuple(buffers))
    if explained < measured:
        return LiveSet(memory=memory, op=op, measured_bytes=measured, buffers=tuple(buffers))
    excess = explained - measured
    doubt = (
        f"the tensors that the log names would take {show_bytes(explained)} per bank, more than the "
        f"{show_bytes(measured)} that the device reports"
    )
    smallest = [one for one in buffers if one.bank_bytes >= excess and one.origin is Origin.ACTIVATION]
    if excess <= _SMALL_EXCESS_TICKS * tick_bytes and smallest:
        gone = smallest[-1]
        kept = tuple(one for one in buffers if one is not gone)
        return LiveSet(
            memory=memory, op=op, measured_bytes=measured, buffers=kept, doubt=f"{doubt}; {gone.owner} is not listed"
        )
    lasting = tuple(one for one in buffers if one.origin not in (Origin.ACTIVATION, Origin.OUTPUT))
    if sum(one.bank_bytes for one in lasting) <= measured:  # lines about activations are missing
        return LiveSet(
            memory=memory, op=op, measured_bytes=measured, buffers=lasting, doubt=f"{doubt}; activations are not listed"
        )
    return LiveSet(memory=memory, op=op, measured_bytes=measured, buffers=(), doubt=doubt)


def _dispute(disputed: list[LiveBuffer]) -> str:
    """Why buffers are not listed that one explanation has, and another one has not."""
    size = show_bytes(sum(one.bank_bytes for one in disputed))
    names = list(dict.fromkeys(one.owner for one in disputed))
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""  # noqa: PLR2004 - two examples
    return (
        f"{size} per bank have more than one explanation that fits all readings, one of them "
        f"{' and '.join(names[:2])}{more}; they are not listed"
    )


def _alike(tracked: TrackedBuffer, live: LiveBuffer) -> bool:
    return tracked.live.bank_bytes == live.bank_bytes and tracked.live.padded_bytes == live.padded_bytes


def _shared_with(live: LiveBuffer, operands: list[TrackedBuffer]) -> TrackedBuffer | None:
    """The operand whose buffer a result reuses: one of its size, else the first."""
    return next((one for one in operands if _alike(one, live)), operands[0] if operands else None)

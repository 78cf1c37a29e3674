"""What would have happened with one change: a weight in another element type, a tensor freed earlier, padding gone.

Every change is replayed over the live sets of the timeline: at each snapshot the buffers that it concerns get their new
size, and the peak is looked for again, because another snapshot may be the highest then. A change that saves nothing
where memory ran out, or at the peak, is not proposed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from torchstone.memory.allocator import allocator_replay
from torchstone.memory.ledger import ledger_of, live_before
from torchstone.memory.study import Study, tick_bytes
from torchstone.record.memory import NONE, Failure
from torchstone.record.memory_findings import Counterfactual, LiveBuffer, LiveSet, Origin

_BLOCK_FLOAT_TILE_BYTES = 1088  # of bfloat8_b
_WIDE_TYPES = ("bf16", "f32", "f16")
_WEIGHTS = (Origin.PARAMETER, Origin.CONSTANT, Origin.CONST_EVAL)
_MOST_SNAPSHOTS = 2000  # the highest ones, in which the new peak is looked for
_MOST_SINGLE = 3  # buffers that are proposed one by one
_DROPPED = 0


@dataclass(frozen=True, slots=True)
class _Change:
    """One change: the new size of a buffer before an op, None where it stays as it is."""

    title: str
    resize: Callable[[LiveBuffer, int], int | None]


def replay_changes(study: Study, memory: str, op: int, failure: Failure | None = None) -> tuple[Counterfactual, ...]:
    """The changes that save memory before an op, largest saving first.

    With a failure, each says whether the allocation would have fit: unknown where free memory was split into blocks.
    """
    if study.timeline.allocations or op == NONE or memory not in study.readings:
        return ()
    live = next(one for one in live_before(study, op) if one.memory == memory)
    if live.measured_bytes is None or not live.buffers:
        return ()
    changes = {change.title: (change, _saved(change, live)) for change in _changes(study, live)}
    worthwhile = {title: one for title, one in changes.items() if one[1] > tick_bytes(study.timeline, 2)}
    replay = _Replay(study, memory, live, most_saved=max((saved for _, saved in worthwhile.values()), default=0))
    found = [
        Counterfactual(
            change=title,
            memory=memory,
            saved_bytes=saved,
            peak_bytes=replay.peak(change),
            fits=_fits(study, failure, change, saved),
        )
        for title, (change, saved) in worthwhile.items()
    ]
    if failure is not None:
        found += [*_result_without_padding(study, failure), *_other_upload_order(study, failure)]
    return tuple(sorted(found, key=lambda one: (-one.saved_bytes, one.change)))


def _saved(change: _Change, live: LiveSet) -> int:
    """Bytes per bank that a change saves in one live set."""
    return sum(one.bank_bytes - size for one in live.buffers if (size := change.resize(one, live.op)) is not None)


def _result_without_padding(study: Study, failure: Failure) -> list[Counterfactual]:
    """The failed allocation itself, with the elements alone."""
    call = study.call(failure.op)
    rows = call.result_types if call is not None else ()
    sized = [(tensor, tensor.logical_bytes) for row in rows if (tensor := study.timeline.types[row]).logical_bytes]
    for tensor, logical in sized:
        if tensor.buffer is None or tensor.buffer.padded_bytes != failure.buffer_bytes or logical is None:
            continue
        needed, free = -(-logical // (failure.banks or 1)), failure.free_bytes
        saved = (failure.needed_bytes or 0) - needed
        if saved > tick_bytes(study.timeline, 2):
            highest = max(study.readings[failure.memory].allocated)
            fits = None if free is None or needed > (failure.largest_block_bytes or 0) else True
            return [
                Counterfactual(
                    change=f"the result that failed, {tensor.text}, without padding",
                    memory=failure.memory,
                    saved_bytes=saved,
                    peak_bytes=tick_bytes(study.timeline, highest),
                    fits=False if free is not None and needed > free else fits,
                )
            ]
    return []


def _fits(study: Study, failure: Failure | None, change: _Change, saved: int) -> bool | None:
    """Whether the failed allocation would have fit: the allocator is replayed with the change.

    Without addresses it can only be refuted, because memory that is saved need not be one block.
    """
    if failure is None or failure.needed_bytes is None or failure.free_bytes is None:
        return None
    if failure.needed_bytes > failure.free_bytes + saved:
        return False
    return allocator_replay(study, failure.memory).would_fit(failure.op, failure.needed_bytes, change.resize)


def _other_upload_order(study: Study, failure: Failure) -> list[Counterfactual]:
    """Weights before inputs, or inputs where they stand: proposed only if the failed allocation fits then."""
    if failure.needed_bytes is None or failure.free_bytes is None or failure.needed_bytes > failure.free_bytes:
        return []
    replay = allocator_replay(study, failure.memory)
    fits = replay.would_fit(failure.op, failure.needed_bytes, lambda _one, _op: None, weights_first=True)
    if not fits:
        return []
    highest = max(study.readings[failure.memory].allocated)
    return [
        Counterfactual(
            change="all weights uploaded before the inputs",
            memory=failure.memory,
            saved_bytes=0,
            peak_bytes=tick_bytes(study.timeline, highest),
            fits=True,
        )
    ]


class _Replay:
    """The highest snapshots of one memory, with what was live there."""

    def __init__(self, study: Study, memory: str, live: LiveSet, *, most_saved: int) -> None:
        self._study, self._memory, self._live, self._most_saved = study, memory, live, most_saved

    def peak(self, change: _Change) -> int:
        """The highest bytes per bank with the change, over all snapshots."""
        highest = (*self._highest, self._live)
        return max(*((one.measured_bytes or 0) - _saved(change, one) for one in highest), self._below)

    @cached_property
    def _order(self) -> list[int]:
        allocated = self._study.readings[self._memory].allocated
        return sorted(range(len(allocated)), key=lambda op: -allocated[op])

    @cached_property
    def _num_highest(self) -> int:
        """How many snapshots can be the peak after the change that saves most."""
        allocated = self._study.readings[self._memory].allocated
        floor = tick_bytes(self._study.timeline, allocated[self._order[0]]) - self._most_saved
        least = sum(tick_bytes(self._study.timeline, allocated[op]) >= floor for op in self._order[:_MOST_SNAPSHOTS])
        return max(least, 1)

    @cached_property
    def _below(self) -> int:
        """The highest reading among the snapshots that are not replayed: no change is believed to go below it."""
        rest = self._order[self._num_highest :]
        return tick_bytes(self._study.timeline, self._study.readings[self._memory].allocated[rest[0]]) if rest else 0

    @cached_property
    def _highest(self) -> list[LiveSet]:
        by_run: dict[int, set[int]] = {}
        for op in self._order[: self._num_highest]:
            by_run.setdefault(self._study.outermost_run(op), set()).add(op)
        ledger = ledger_of(self._study)
        found = []
        for run, ops in by_run.items():
            for sets in ledger.replay(run).follow(ops, until=max(ops) + 1).live_sets.values():
                found += [one for one in sets if one.memory == self._memory and one.measured_bytes is not None]
        return found


# --- The changes ---


def _changes(study: Study, live: LiveSet) -> Iterable[_Change]:
    buffers = live.buffers
    yield _in_block_float(study, "all weights in bfloat8_b", lambda one: one.origin in _WEIGHTS)
    for one in [one for one in buffers if one.origin in _WEIGHTS][:_MOST_SINGLE]:
        yield _in_block_float(study, f"{one.owner} in bfloat8_b", _same_as(one))
    yield _in_block_float(study, "the KV cache in bfloat8_b", lambda one: one.origin is Origin.KV_CACHE)
    yield _Change(
        "outputs of earlier passes dropped by the host before the next pass",
        lambda one, _: _DROPPED if one.origin is Origin.OUTPUT else None,
    )
    yield from _duplicates(buffers)
    yield from _freed_after_last_use(study, live)
    for one in sorted(buffers, key=_padding, reverse=True)[:_MOST_SINGLE]:
        if _padding(one) > 0:
            yield _without_padding(study, live.memory, one)
    if live.memory == "L1":
        for one in [one for one in buffers if one.origin is Origin.ACTIVATION][:_MOST_SINGLE]:
            same = _same_as(one)
            yield _Change(f"{one.owner} in DRAM", lambda other, _, same=same: _DROPPED if same(other) else None)  # type: ignore[misc]


def _same_as(wanted: LiveBuffer) -> Callable[[LiveBuffer], bool]:
    def is_same(one: LiveBuffer) -> bool:
        return (one.owner, one.type, one.origin) == (wanted.owner, wanted.type, wanted.origin)

    return is_same


def _in_block_float(study: Study, title: str, concerns: Callable[[LiveBuffer], bool]) -> _Change:
    def resize(one: LiveBuffer, _op: int) -> int | None:
        buffer = study.timeline.types[one.type].buffer
        if buffer is None or not buffer.tiled or buffer.dtype not in _WIDE_TYPES or not concerns(one):
            return None
        tile_bytes = buffer.page_bytes or 1  # 0 in a damaged file
        return one.bank_bytes // tile_bytes * _BLOCK_FLOAT_TILE_BYTES

    return _Change(title, resize)


def _without_padding(study: Study, memory: str, wanted: LiveBuffer) -> _Change:
    same, banks = _same_as(wanted), study.banks[memory]

    def resize(one: LiveBuffer, _op: int) -> int | None:
        if not same(one) or one.logical_bytes is None:
            return None
        cores = max(1, round(one.padded_bytes / max(one.bank_bytes, 1))) if memory == "L1" else banks
        return min(-(-one.logical_bytes // cores), one.bank_bytes)

    return _Change(f"{wanted.owner} ({study.timeline.types[wanted.type].text}) without padding", resize)


def _padding(one: LiveBuffer) -> int:
    return 0 if one.logical_bytes is None else one.padded_bytes - one.logical_bytes


def _duplicates(buffers: Sequence[LiveBuffer]) -> Iterable[_Change]:
    """Weights that lie on the device twice: as they came and as a const-eval prepared them, or prepared twice."""
    prepared = {one.owner.removeprefix("const-eval of ") for one in buffers if one.origin is Origin.CONST_EVAL}
    originals = {one.owner for one in buffers if one.origin is Origin.PARAMETER and one.owner in prepared}
    if originals:
        yield _Change(
            "the originals of weights that a const-eval prepared freed",
            lambda one, _: _DROPPED if one.origin is Origin.PARAMETER and one.owner in originals else None,
        )
    seen: set[tuple[str, int]] = set()
    twice: set[int] = set()
    for one in buffers:
        key = (one.owner, one.type)
        if one.origin is Origin.CONST_EVAL and key in seen:
            twice.add(id(one))
        seen.add(key)
    if twice:
        names = {(one.owner, one.type) for one in buffers if id(one) in twice}
        yield _Change(
            "weights that several const-evals prepared alike kept once",
            lambda one, _: (
                one.bank_bytes // 2 if one.origin is Origin.CONST_EVAL and (one.owner, one.type) in names else None
            ),
        )


def _freed_after_last_use(study: Study, live: LiveSet) -> Iterable[_Change]:
    """Inputs that the graph does not read any more; the runtime retains them until the pass ends."""
    run = study.timeline.programs[study.outermost_run(live.op)]
    last: dict[str, int] = {}
    for op in range(run.first_op, run.end_op):
        call = study.call(op)
        if call is not None and study.run(op).parent == NONE and not call.name.endswith(".deallocate"):
            last |= dict.fromkeys(call.operands, op)
    idle = [one for one in live.buffers if one.origin is Origin.INPUT and last.get(one.value, NONE) < live.op]
    for wanted in idle[:_MOST_SINGLE]:
        same = _same_as(wanted)
        since = last.get(wanted.value, NONE)
        when = "before the pass" if since == NONE else f"after op {since}, its last use"
        yield _Change(
            f"input {wanted.owner} freed {when}",
            lambda one, op, same=same, since=since: _DROPPED if same(one) and op > since else None,  # type: ignore[misc]
        )

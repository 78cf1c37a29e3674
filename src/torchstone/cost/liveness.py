"""How much memory is held while each op runs, when most of it is, and by what.

A piece of memory is held from the op that makes it to the last op that uses it; what the model gives back and the
gradients of its parameters, to the end.
Weights and inputs are held all the time, a cache that came in until it is last used. What code makes without an op
while it runs, such as torch.tensor([...]), is held from the op call that hands it over. Views share their piece.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from itertools import accumulate

from torchstone.cost.boundary_tensors import fold_numbers
from torchstone.cost.shorten import MIDDLE, Change, Moment, Run, Short
from torchstone.cost.storages import Storages
from torchstone.record.base import Record
from torchstone.record.cost import Category, LiveTensor, Peak
from torchstone.record.trace import Trace

_LISTED = 40
_HANDED_OVER = "aten.lift_fresh.default"


class LiveMemory(Record, frozen=True, kw_only=True):
    """The bytes that are live at each op call, and the peak."""

    timeline_bytes: tuple[int, ...]
    peak: Peak


class Lives(Record, frozen=True, kw_only=True):
    """When each piece of memory is held."""

    first: list[int]  # by storage; -1: there before the first op
    last: list[int]
    calls: int  # `last` of what stays live to the end
    used: list[int]  # the storages that were there before, or that an op makes or reads

    def always(self, storage: int) -> bool:
        """Whether a piece is held all the time."""
        return self.first[storage] < 0 and self.last[storage] == self.calls


class _PerBlock(Record, frozen=True, kw_only=True):
    """Pieces of which each block of a run has its own."""

    kept: list[int]  # made by the block and held to the end
    freed: list[tuple[int, int]]  # there before and last used by the block, each with the step to the next block's
    always: list[tuple[int, int]]  # there before and held all the time


_Alive = dict[tuple[str, str, int], int]  # name, module, and a storage of that looks -> how many pieces


def live_memory(short: Short, storages: Storages) -> LiveMemory:
    """Follow every piece of memory through the run."""
    lives = lives_of(short.trace, storages)
    pieces = [_per_block(run, storages, lives) for run in short.runs]
    timeline = _spread(short, storages, lives, pieces)
    top = timeline.index(max(timeline)) if timeline else -1
    alive = _AliveAt(short, storages, lives, short.moment(top)).found(pieces)
    return LiveMemory(timeline_bytes=tuple(timeline), peak=_peak(short, storages, alive, top))


def peak_bytes(short: Short, storages: Storages, lives: Lives) -> int:
    """The most bytes that are held at a time; `lives` do not depend on the sizes of the storages."""
    pieces = [_per_block(run, storages, lives) for run in short.runs]
    before = sum(map(storages.whole_size, storages.names))  # all there is where nothing runs
    return max(_spread(short, storages, lives, pieces), default=before)


def _spread(short: Short, storages: Storages, lives: Lives, pieces: Sequence[_PerBlock]) -> list[int]:
    """Bytes held at each op call of the whole trace."""
    changes = [
        Change(kept=_bytes(one.kept, storages), freed=_bytes([piece for piece, _ in one.freed], storages))
        for one in pieces
    ]
    return short.spread(_timeline(storages, lives), changes)


def lives_of(trace: Trace, storages: Storages) -> Lives:
    """The first and the last op that needs each piece of memory."""
    count, end = len(storages.sizes), len(trace.ops)
    first, last = [end] * count, [-1] * count
    for index, (read, made) in enumerate(zip(storages.read, storages.made, strict=True)):
        for storage in read:
            last[storage] = index
        for storage in made:
            last[storage] = index
            if first[storage] == end:
                first[storage] = index
    used = set(storages.names).union(*storages.read, *storages.made)
    handed_over = _handed_over(trace, storages)
    for storage in storages.names:
        first[storage] = handed_over.get(storage, -1)
        if storage not in handed_over and storage not in storages.cache_inputs and storage not in storages.replaced:
            last[storage] = end
    for storage in storages.kept:
        last[storage] = end
    return Lives(first=first, last=last, calls=end, used=sorted(used))


def _handed_over(trace: Trace, storages: Storages) -> dict[int, int]:
    """The constants that code makes while it runs, as torch.tensor([...]) and torch.from_numpy do, with the op call."""
    signatures = trace.ops.signatures
    if not any(one.op == _HANDED_OVER for one in signatures):
        return {}
    found: dict[int, int] = {}
    seen: set[int] = set()
    for row, number in enumerate(trace.ops.signature_of):
        read = storages.read[row]
        if signatures[number].op == _HANDED_OVER:
            found.update((storage, row) for storage in read if storage not in seen and storage in storages.names)
        seen.update(read)
    return found


def largest_sum(trace: Trace, storages: Storages) -> tuple[int, int]:
    """The most bytes that are held at a time, and those of caches among them, for a trace that is written out."""
    lives = lives_of(trace, storages)
    timeline = _timeline(storages, lives)
    if not timeline:
        return 0, 0
    row = timeline.index(max(timeline))
    caches = [
        storages.sizes[one]
        for one in lives.used
        if storages.categories[one] is Category.KV_CACHE and lives.first[one] <= row <= lives.last[one]
    ]
    return timeline[row], sum(caches)


def _per_block(run: Run, storages: Storages, lives: Lives) -> _PerBlock:
    return _PerBlock(
        kept=[
            one
            for one in run.storages.of(MIDDLE)
            if 0 <= lives.first[one] < lives.calls == lives.last[one] and storages.sizes[one]
        ],
        freed=[(one, step) for one, step in run.own if lives.first[one] < 0 and lives.last[one] < lives.calls],
        always=[(one, step) for one, step in run.own if lives.always(one) and storages.sizes[one]],
    )


def _bytes(pieces: Sequence[int], storages: Storages) -> int:
    return sum(map(storages.sizes.__getitem__, pieces))


def _timeline(storages: Storages, lives: Lives) -> list[int]:
    """Bytes held at each op call; what a block left out holds for a time is not among them."""
    calls, sizes, lasts = lives.calls, storages.sizes, lives.last
    changes = [0] * (calls + 1)
    before = sum([storages.whole_size(storage) for storage in storages.names if lives.always(storage)])
    for storage in lives.used:
        first, last = lives.first[storage], lasts[storage]
        if first < 0:
            if last == calls:
                continue
            first = 0
        size = sizes[storage]
        changes[first] += size
        if last < calls:
            changes[last + 1] -= size
    return [before + held for held in accumulate(changes[:calls])]


class _AliveAt:
    """The pieces of memory that are held at a moment, with the names of all that one of them stands for."""

    def __init__(self, short: Short, storages: Storages, lives: Lives, moment: Moment) -> None:
        self._short = short
        self._storages = storages
        self._lives = lives
        self._moment = moment
        self._alive: _Alive = defaultdict(int)

    def found(self, pieces: Sequence[_PerBlock]) -> _Alive:
        """By name and module, the numbers of equal layers left open."""
        sizes, names, row, lives = self._storages.sizes, self._storages.names, self._moment.row, self._lives
        first, last = lives.first, lives.last
        for storage in lives.used:
            if first[storage] <= row <= last[storage] and sizes[storage]:
                if storage in names:
                    self._alive[self._name(storage), "", storage] += 1
                else:
                    self._add_made_here(storage)
        for run, one, gone in zip(self._short.runs, pieces, self._moment.before, strict=True):
            for storage, step in one.always:
                self._add_named(storage, step, range(1, run.left_out + 1))
            for storage, step in one.freed:
                # The middle block stands for the one that runs, so its own piece is the one it is about to free.
                self._add_named(storage, step, range(gone + 1, run.left_out + 1))
                if gone and lives.last[storage] >= row:
                    self._rename(storage, storage + step * gone)
            for storage in one.kept:
                for copy in range(gone):
                    self._add_made(storage, run.module_step * copy)
        return self._alive

    def _add_made_here(self, storage: int) -> None:
        row = self._lives.first[storage]
        path = self._short.path_at(row, self._moment, handed_on=storage not in self._storages.kept)
        self._alive[self._op(row), fold_numbers(path), storage] += 1

    def _add_named(self, storage: int, step: int, copies: range) -> None:
        for copy in copies:
            self._alive[self._name(storage + step * copy), "", storage] += 1

    def _rename(self, storage: int, now: int) -> None:
        self._alive[self._name(storage), "", storage] -= 1
        self._alive[self._name(now), "", storage] += 1

    def _add_made(self, storage: int, module_shift: int) -> None:
        row = self._lives.first[storage]
        path = self._short.path_in_copy(row, module_shift)
        self._alive[self._op(row), fold_numbers(path), storage] += 1

    def _name(self, storage: int) -> str:
        return fold_numbers(self._short.ends.names[storage] or "constant")

    def _op(self, row: int) -> str:
        ops = self._short.trace.ops
        return ops.signatures[ops.signature_of[row]].op


def _peak(short: Short, storages: Storages, alive: _Alive, index: int) -> Peak:
    pieces: defaultdict[int, int] = defaultdict(int)
    for (_, _, storage), count in alive.items():
        pieces[storage] += count * storages.sizes[storage]
    held = storages.by_category(pieces)
    total = sum(held.values())
    rows = _rows(storages, alive, _first_specs(short.trace, pieces))
    moment = short.moment(index)
    call = short.trace.ops[moment.row] if index >= 0 else None
    return Peak(
        total_bytes=total,
        weights_bytes=held[Category.WEIGHTS],
        kv_cache_bytes=held[Category.KV_CACHE],
        activations_bytes=held[Category.ACTIVATIONS],
        operation_index=index,
        op=call.op if call else "",
        module=short.path_at(moment.row, moment) if call else "",
        alive=tuple(rows),
        not_listed_bytes=total - sum(row.size_bytes for row in rows),
    )


def _rows(storages: Storages, alive: _Alive, specs: Mapping[int, str]) -> list[LiveTensor]:
    """One row for all equal pieces in repeated layers; the largest, in order."""
    counts: defaultdict[tuple[str, str, str, Category], int] = defaultdict(int)
    sizes: defaultdict[tuple[str, str, str, Category], int] = defaultdict(int)
    for (name, module, storage), count in alive.items():
        key = (name, module, specs[storage], storages.categories[storage])
        counts[key] += count
        sizes[key] += count * storages.sizes[storage]
    largest = nsmallest(_LISTED, ((-size, *key) for key, size in sizes.items() if size))
    return [
        LiveTensor(name=name, module=module, tensor=spec, size_bytes=-size, category=category,
                   count=counts[name, module, spec, category])
        for size, name, module, spec, category in largest
    ]  # fmt: skip


def _first_specs(trace: Trace, storages: Mapping[int, int]) -> dict[int, str]:
    """For each storage its first tensor, as text."""
    table = trace.tensors
    found: dict[int, int] = {}
    for storage, spec in zip(table.storage_of, table.spec_of, strict=True):
        if storage in storages and storage not in found:
            found[storage] = spec
    texts = {spec: str(table.specs[spec]) for spec in set(found.values())}
    return {storage: texts[spec] for storage, spec in found.items()}

"""How much memory is held while each op runs, when most of it is, and by what.

A piece of memory is held from the op that makes it to the last op that uses it; what the model gives back and the
gradients of its parameters, to the end.
Weights and inputs are held all the time, a cache that came in until it is last used. Views share their piece.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate

from torchstone.cost.repeats import MIDDLE, NOTHING_LEFT_OUT, Change, Repeats, Run
from torchstone.cost.storages import Storages, fold_numbers
from torchstone.record.base import Record
from torchstone.record.cost import Category, LiveTensor, Peak
from torchstone.record.trace import Trace

_LISTED = 40


class Held(Record, frozen=True, kw_only=True):
    """Memory held over the run."""

    timeline_bytes: tuple[int, ...]
    peak: Peak


class Lives(Record, frozen=True, kw_only=True):
    """When each piece of memory is held."""

    first: list[int]  # by storage; -1: there before the first op
    last: list[int]
    calls: int  # `last` of what is held to the end
    used: list[int]  # the storages that were there before, or that an op makes or reads

    def always(self, storage: int) -> bool:
        """Whether a piece is held all the time."""
        return self.first[storage] < 0 and self.last[storage] == self.calls


class _PerBlock(Record, frozen=True, kw_only=True):
    """Pieces of which each block of a run has its own."""

    kept: list[int]  # made by the block and held to the end
    freed: list[int]  # there before and last used by the block


def hold(trace: Trace, storages: Storages, repeats: Repeats = NOTHING_LEFT_OUT, whole: Trace | None = None) -> Held:
    """Follow every piece of memory through the run; `whole` is the trace that was shortened."""
    lives = lives_of(trace, storages)
    pieces = [_per_block(run, storages, lives) for run in repeats.runs]
    changes = [Change(kept=_bytes(one.kept, storages), freed=_bytes(one.freed, storages)) for one in pieces]
    timeline = repeats.spread(_timeline(storages, lives), changes)
    top = timeline.index(max(timeline)) if timeline else -1
    moment = repeats.moment(top)
    alive = _alive(storages, lives, moment.row)
    for one, held in zip(pieces, moment.held_by(repeats.runs), strict=True):
        for storages_held, more in ((one.kept, held.kept), (one.freed, held.freed)):
            alive |= {storage: alive.get(storage, 0) + more for storage in storages_held}
    left = repeats.tensors_left(len(trace.tensors))
    rows = _rows(trace, storages, lives, alive, _first_specs(trace, alive, left))
    return Held(timeline_bytes=tuple(timeline), peak=_peak(whole or trace, storages, alive, top, rows))


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
    for storage in storages.names:
        first[storage] = -1
        if storage not in storages.cache_inputs:
            last[storage] = end
    for storage in storages.kept:
        last[storage] = end
    return Lives(first=first, last=last, calls=end, used=sorted(used))


def _per_block(run: Run, storages: Storages, lives: Lives) -> _PerBlock:
    return _PerBlock(
        kept=[
            one
            for one in run.storages.of(MIDDLE)
            if 0 <= lives.first[one] < lives.calls == lives.last[one] and storages.sizes[one]
        ],
        freed=[one for one in run.own_of(MIDDLE) if lives.last[one] < lives.calls],
    )


def _bytes(pieces: Sequence[int], storages: Storages) -> int:
    return sum(map(storages.sizes.__getitem__, pieces))


def _timeline(storages: Storages, lives: Lives) -> list[int]:
    """Bytes held at each op call; what a block left out holds for a time is not among them."""
    calls = lives.calls
    changes = [0] * (calls + 1)
    before = sum(storages.whole_size(storage) for storage in storages.names if lives.always(storage))
    for storage in lives.used:
        size, first, last = storages.sizes[storage], lives.first[storage], lives.last[storage]
        if first < 0 and last == calls:
            continue
        changes[max(first, 0)] += size
        if last < calls:
            changes[last + 1] -= size
    return [before + held for held in accumulate(changes[:calls])]


def _alive(storages: Storages, lives: Lives, row: int) -> dict[int, int]:
    """The pieces held at an op call, and how many each stands for."""
    first, last, sizes = lives.first, lives.last, storages.sizes
    return {
        storage: storages.times.get(storage, 1) if lives.always(storage) else 1
        for storage in lives.used
        if first[storage] <= row <= last[storage] and sizes[storage]
    }


def _peak(trace: Trace, storages: Storages, alive: Mapping[int, int], index: int, rows: Sequence[LiveTensor]) -> Peak:
    held = storages.by_category({storage: storages.sizes[storage] * count for storage, count in alive.items()})
    total = sum(held.values())
    call = trace.ops[index] if index >= 0 else None
    return Peak(
        total_bytes=total,
        weights_bytes=held[Category.WEIGHTS],
        kv_cache_bytes=held[Category.KV_CACHE],
        activations_bytes=held[Category.ACTIVATIONS],
        operation_index=index,
        op=call.op if call else "",
        module=trace.module_path_of(call) if call else "",
        alive=tuple(rows[:_LISTED]),
        not_listed_bytes=total - sum(row.size_bytes for row in rows[:_LISTED]),
    )


def _rows(
    trace: Trace, storages: Storages, lives: Lives, alive: Mapping[int, int], specs: Mapping[int, str]
) -> list[LiveTensor]:
    """One row for all equal pieces in repeated layers, largest first."""
    groups: defaultdict[tuple[str, str, str, Category], int] = defaultdict(int)
    sizes: defaultdict[tuple[str, str, str, Category], int] = defaultdict(int)
    for storage, count in alive.items():
        name, module = _origin(trace, storages, lives, storage)
        key = (name, module, specs[storage], storages.categories[storage])
        groups[key] += count
        sizes[key] += count * storages.sizes[storage]
    rows = [
        LiveTensor(name=name, module=module, tensor=spec, size_bytes=size, category=category,
                   count=groups[name, module, spec, category])
        for (name, module, spec, category), size in sizes.items() if size
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row.size_bytes, row.name, row.module, row.tensor))


def _first_specs(trace: Trace, storages: Mapping[int, int], left: Sequence[slice]) -> dict[int, str]:
    """For each storage its first tensor, as text."""
    table = trace.tensors
    found: dict[int, int] = {}
    for tensors in left:
        for storage, spec in zip(table.storage_of[tensors], table.spec_of[tensors], strict=True):
            if storage in storages and storage not in found:
                found[storage] = spec
    texts = {spec: str(table.specs[spec]) for spec in set(found.values())}
    return {storage: texts[spec] for storage, spec in found.items()}


def _origin(trace: Trace, storages: Storages, lives: Lives, storage: int) -> tuple[str, str]:
    if storage in storages.names:
        return fold_numbers(storages.names[storage] or "constant"), ""
    call = trace.ops[lives.first[storage]]
    return call.op, fold_numbers(trace.module_path_of(call))

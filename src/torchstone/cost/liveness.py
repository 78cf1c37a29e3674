"""How much memory is held while each op runs, when most of it is, and by what.

A piece of memory is held from the op that makes it to the last op that uses it; what the model gives back, to the end.
Weights and inputs are held all the time, a cache that came in until it is last used. Views share their piece.
"""

import re
from collections.abc import Sequence
from functools import cache
from itertools import accumulate

from torchstone.cost.storages import Storages
from torchstone.record.base import Record
from torchstone.record.cost import Category, LiveTensor, Peak
from torchstone.record.trace import Trace

_LISTED = 40
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


class Held(Record, frozen=True, kw_only=True):
    """Memory held over the run."""

    timeline_bytes: tuple[int, ...]
    peak: Peak


class Lives(Record, frozen=True, kw_only=True):
    """When each piece of memory is held."""

    first: list[int]  # by storage; -1: there before the first op
    last: list[int]


def hold(trace: Trace, storages: Storages) -> Held:
    """Follow every piece of memory through the run."""
    lives = lives_of(trace, storages)
    calls = len(trace.ops)
    changes = [0] * (calls + 1)
    before = 0
    for size, first, last in zip(storages.sizes, lives.first, lives.last, strict=True):
        if first < 0:
            before += size
        else:
            changes[first] += size
        if last < calls:
            changes[last + 1] -= size
    timeline = [before + held for held in accumulate(changes[:calls])]
    top = max(range(calls), key=timeline.__getitem__, default=-1)
    return Held(timeline_bytes=tuple(timeline), peak=_peak(trace, storages, lives, top))


def lives_of(trace: Trace, storages: Storages) -> Lives:
    """The first and the last op that needs each piece of memory."""
    storage_of, ops = trace.tensors.storage_of, trace.ops
    count, end = len(storages.sizes), len(ops)
    first, last = [end] * count, [-1] * count
    for index, (inputs, outputs) in enumerate(zip(ops.inputs, ops.outputs, strict=True)):
        for tensor in inputs:
            last[storage_of[tensor]] = index
        for tensor in outputs:
            storage = storage_of[tensor]
            last[storage] = index
            if first[storage] == end:
                first[storage] = index
    for storage in storages.names:
        first[storage] = -1
        if storage not in storages.cache_inputs:
            last[storage] = end
    for storage in storages.kept:
        last[storage] = end
    return Lives(first=first, last=last)


def _peak(trace: Trace, storages: Storages, lives: Lives, index: int) -> Peak:
    alive = [
        storage
        for storage, (first, last) in enumerate(zip(lives.first, lives.last, strict=True))
        if first <= index <= last and storages.sizes[storage]
    ]
    by_category = dict.fromkeys(Category, 0)
    for storage in alive:
        by_category[storages.categories[storage]] += storages.sizes[storage]
    rows = _rows(trace, storages, lives, alive)
    total = sum(by_category.values())
    call = trace.ops[index] if index >= 0 else None
    return Peak(
        total_bytes=total,
        weights_bytes=by_category[Category.WEIGHTS],
        kv_cache_bytes=by_category[Category.KV_CACHE],
        activations_bytes=by_category[Category.ACTIVATIONS],
        operation_index=index,
        op=call.op if call else "",
        module=trace.module_path_of(call) if call else "",
        alive=rows[:_LISTED],
        not_listed_bytes=total - sum(row.size_bytes for row in rows[:_LISTED]),
    )


def _rows(trace: Trace, storages: Storages, lives: Lives, alive: Sequence[int]) -> tuple[LiveTensor, ...]:
    """One row for all equal pieces in repeated layers, largest first."""
    tensor_of: dict[int, int] = {}
    wanted = set(alive)
    for tensor, storage in enumerate(trace.tensors.storage_of):
        if storage in wanted:
            tensor_of.setdefault(storage, tensor)
    specs = [str(spec) for spec in trace.tensors.specs]
    groups: dict[tuple[str, str, str, Category], tuple[int, int]] = {}
    for storage in alive:
        name, module = _origin(trace, storages, lives, storage)
        spec = specs[trace.tensors.spec_of[tensor_of[storage]]]
        key = (name, module, spec, storages.categories[storage])
        count, size = groups.get(key, (0, 0))
        groups[key] = (count + 1, size + storages.sizes[storage])
    rows = [
        LiveTensor(name=name, module=module, tensor=spec, size_bytes=size, category=category, count=count)
        for (name, module, spec, category), (count, size) in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.size_bytes, row.name, row.module, row.tensor)))


def _origin(trace: Trace, storages: Storages, lives: Lives, storage: int) -> tuple[str, str]:
    if storage in storages.names:
        return fold_numbers(storages.names[storage] or "constant"), ""
    call = trace.ops[lives.first[storage]]
    return call.op, fold_numbers(trace.module_path_of(call))


@cache
def fold_numbers(path: str) -> str:
    """A path with the numbers of repeated layers left open: layers.3.mlp -> layers.*.mlp."""
    return _NUMBER.sub("*", path)

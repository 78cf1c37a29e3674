"""Storages of a trace: size, content, what exists before the first op and what survives the last one."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from torchstone.cost.registry import extent_bytes
from torchstone.cost.repeats import NOTHING_LEFT_OUT, Repeats
from torchstone.record.cost import Category
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace
from torchstone.record.value import Entries, Fields, Items, Value

# What was there before the first op of a trace, and what is there after the last one.


_CACHE_NAMES = frozenset(
    ("past_key_values", "past_key_value", "past_buckets_states", "cache_params", "kv_cache", "cache", "mems", "state")
)
_WEIGHTS = frozenset(("parameter", "buffer", "constant"))
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|(?<=\[)\d+(?=\])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Pieces of memory, by storage number."""

    extents: list[int | None]  # of each spec of the trace: bytes up to its last element
    names: dict[int, str]  # those that were there before the first op
    sizes: dict[int, int]  # as far as the tensors that were there reach
    weights: frozenset[int]
    kept: frozenset[int]  # those that the model gives back, and the gradients of its parameters
    gradients: frozenset[int]
    caches_in: frozenset[int]
    caches_out: frozenset[int]


def find_ends(trace: Trace) -> Ends:
    """Look at what the root was given, holds and gave."""
    table = trace.tensors
    extents = list(map(extent_bytes, table.specs))
    tensors = [external.tensor for external in table.external]
    storages = list(map(table.storage_of.__getitem__, tensors))
    names: dict[int, str] = {}
    for storage, external in zip(storages, table.external, strict=True):
        names.setdefault(storage, external.name)
    sizes = dict.fromkeys(names, 0)
    for storage, spec in zip(storages, map(table.spec_of.__getitem__, tensors), strict=True):
        if (extent := extents[spec] or 0) > sizes[storage]:
            sizes[storage] = extent
    weights = [storage for storage, external in zip(storages, table.external, strict=True) if external.kind in _WEIGHTS]
    kept, caches_out, caches_in = _given_and_made(trace)
    gradients = frozenset(map(table.storage_of.__getitem__, table.gradients.values()))
    return Ends(
        extents=extents,
        names=names,
        sizes=sizes,
        weights=frozenset(weights),
        kept=frozenset(kept) | gradients,
        gradients=gradients,
        caches_in=frozenset(caches_in),
        caches_out=frozenset(caches_out),
    )


@cache
def fold_numbers(path: str) -> str:
    """A path with the numbers of repeated layers left open: layers.3.mlp -> layers.*.mlp, cache[3] -> cache[*]."""
    return _NUMBER.sub("*", path)


def _given_and_made(trace: Trace) -> tuple[set[int], set[int], set[int]]:
    """The storages that the root call gives back, and the caches among those and among what it was given."""
    if not len(trace.module_calls):
        return set(), set(), set()
    root = trace.module_calls[0]
    storage_of = trace.tensors.storage_of
    given: list[bool] = []
    for argument in root.signature.arguments:
        _mark_cached(argument.value, given, inside=argument.name in _CACHE_NAMES)
    made: list[bool] = []
    _mark_cached(root.signature.output, made, inside=False)
    outputs = {storage_of[tensor] for tensor in root.outputs}
    caches_out = {storage_of[tensor] for tensor, cached in zip(root.outputs, made, strict=False) if cached}
    caches_in = {storage_of[tensor] for tensor, cached in zip(root.inputs, given, strict=False) if cached}
    return outputs, caches_out, caches_in


def _mark_cached(value: Value, marks: list[bool], *, inside: bool) -> None:
    """Add for each tensor in a value, in order, whether it is part of a cache."""
    if isinstance(value, TensorSpec):
        marks.append(inside)
    elif isinstance(value, Items):
        for item in value.items:
            _mark_cached(item, marks, inside=inside)
    elif isinstance(value, Entries):
        for key, item in value.entries:
            _mark_cached(item, marks, inside=inside or key in _CACHE_NAMES)
    elif isinstance(value, Fields):
        inside = inside or "Cache" in value.class_name.rpartition(".")[2]
        for field, item in value.fields:
            _mark_cached(item, marks, inside=inside or field in _CACHE_NAMES)


# Every piece of memory in a trace: how large it is, what it holds, and whether it outlives the run.


_STORAGES_WEIGHTS, _KV_CACHE = Category.WEIGHTS, Category.KV_CACHE


@dataclass(frozen=True, slots=True, kw_only=True)
class Storages:
    """The memory of a trace, by storage number."""

    sizes: list[int]
    categories: list[Category]
    names: dict[int, str]  # those that were there before the first op
    kept: frozenset[int]  # those that the model gives back, and the gradients of its parameters
    gradients: frozenset[int]
    cache_inputs: frozenset[int]  # caches that came in
    unknown: int  # tensors whose size is not known; they count as nothing
    read: list[tuple[int, ...]]  # by op call: where its inputs lie
    made: list[tuple[int, ...]]  # by op call: where its outputs lie
    times: dict[int, int] = field(default_factory=dict)  # those that stand for several pieces, and for how many

    def whole_size(self, storage: int) -> int:
        """Bytes of a piece and of all those it stands for."""
        return self.sizes[storage] * self.times.get(storage, 1)

    def by_category(self, sizes: Mapping[int, int]) -> dict[Category, int]:
        """One number for each of some storages, summed by what the storages hold."""
        weights = kv_cache = activations = 0
        for storage, size in sizes.items():
            category = self.categories[storage]
            if category is _STORAGES_WEIGHTS:
                weights += size
            elif category is _KV_CACHE:
                kv_cache += size
            else:
                activations += size
        return {_STORAGES_WEIGHTS: weights, _KV_CACHE: kv_cache, Category.ACTIVATIONS: activations}


def find_storages(trace: Trace, ends: Ends | None = None, repeats: Repeats = NOTHING_LEFT_OUT) -> Storages:
    """Look at every tensor once; of a shortened trace, at those that are left."""
    ends = ends or find_ends(trace)
    left_out = repeats.storages_left_out()
    sizes = _sizes(trace, ends, repeats)
    for storage in left_out:
        sizes[storage] = 0
    categories = [Category.ACTIVATIONS] * len(sizes)
    for storage in ends.caches_out | ends.caches_in:
        categories[storage] = _KV_CACHE
    for storage in ends.weights:
        categories[storage] = _STORAGES_WEIGHTS
    place = trace.tensors.storage_of.__getitem__
    return Storages(
        sizes=sizes,
        categories=categories,
        names={storage: name for storage, name in ends.names.items() if storage not in left_out},
        kept=ends.kept,
        gradients=ends.gradients,
        cache_inputs=ends.caches_in - left_out,
        unknown=_unknown(trace, ends),
        read=[tuple(map(place, tensors)) for tensors in trace.ops.inputs],
        made=[tuple(map(place, tensors)) for tensors in trace.ops.outputs],
        times=repeats.times_of_storages(),
    )


def _sizes(trace: Trace, ends: Ends, repeats: Repeats) -> list[int]:
    """How far the tensors of each storage reach."""
    table = trace.tensors
    extents = [extent or 0 for extent in ends.extents]
    sizes = [0] * (max(table.storage_of, default=-1) + 1)
    for left in repeats.tensors_left(len(table)):
        for spec, storage in zip(table.spec_of[left], table.storage_of[left], strict=True):
            if (extent := extents[spec]) > sizes[storage]:
                sizes[storage] = extent
    return sizes


def _unknown(trace: Trace, ends: Ends) -> int:
    unsized = {number for number, extent in enumerate(ends.extents) if extent is None}
    return sum(spec in unsized for spec in trace.tensors.spec_of) if unsized else 0

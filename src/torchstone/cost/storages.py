"""Every piece of memory in a trace: how large it is, what it holds, and whether it outlives the run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchstone.cost.traffic import extent_bytes
from torchstone.record.cost import Category
from torchstone.record.trace import Trace
from torchstone.record.value import Entries, Fields, Items, Value, tensors_in

_CACHE_NAMES = frozenset(
    ("past_key_values", "past_key_value", "past_buckets_states", "cache_params", "kv_cache", "cache", "mems", "state")
)
_WEIGHTS = ("parameter", "buffer", "constant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Storages:
    """The memory of a trace, by storage number."""

    sizes: list[int]
    categories: list[Category]
    names: dict[int, str]  # those that were there before the first op
    kept: frozenset[int]  # those that the model gives back
    cache_inputs: frozenset[int]  # caches that came in
    unknown: int  # pieces whose size is not known; they count as nothing

    def by_category(self, sizes: Sequence[int]) -> dict[Category, int]:
        """One number for each piece, summed by what the pieces hold."""
        sums = dict.fromkeys(Category, 0)
        for category, size in zip(self.categories, sizes, strict=True):
            if size:
                sums[category] += size
        return sums


def find_storages(trace: Trace) -> Storages:
    """Look at every tensor once."""
    table = trace.tensors
    sizes, unknown = _sizes(trace)
    categories = [Category.ACTIVATIONS] * len(sizes)
    names: dict[int, str] = {}
    for external in table.external:
        storage = table.storage_of[external.tensor]
        names.setdefault(storage, external.name)
        if external.kind in _WEIGHTS:
            categories[storage] = Category.WEIGHTS
    outputs, caches_out, caches_in = _ends(trace)
    for storage in caches_out | caches_in:
        if categories[storage] is Category.ACTIVATIONS:
            categories[storage] = Category.KV_CACHE
    return Storages(
        sizes=sizes,
        categories=categories,
        names=names,
        kept=frozenset(outputs),
        cache_inputs=frozenset(caches_in),
        unknown=unknown,
    )


def _sizes(trace: Trace) -> tuple[list[int], int]:
    table = trace.tensors
    extents = [extent_bytes(spec) for spec in table.specs]
    sizes = [0] * (max(table.storage_of, default=-1) + 1)
    unknown = 0
    for spec, storage in zip(table.spec_of, table.storage_of, strict=True):
        extent = extents[spec]
        if extent is None:
            unknown += 1
        elif extent > sizes[storage]:
            sizes[storage] = extent
    return sizes, unknown


def _ends(trace: Trace) -> tuple[set[int], set[int], set[int]]:
    """The storages that the root call gives back, and the caches among those and among what it was given."""
    if not len(trace.module_calls):
        return set(), set(), set()
    root = trace.module_calls[0]
    storage_of = trace.tensors.storage_of
    given: list[bool] = []
    for argument in root.signature.arguments:
        given.extend(_cached(argument.value, inside=argument.name in _CACHE_NAMES))
    made = list(_cached(root.signature.output, inside=False))
    outputs = {storage_of[tensor] for tensor in root.outputs}
    caches_out = {storage_of[tensor] for tensor, cached in zip(root.outputs, made, strict=False) if cached}
    caches_in = {storage_of[tensor] for tensor, cached in zip(root.inputs, given, strict=False) if cached}
    return outputs, caches_out, caches_in


def _cached(value: Value, *, inside: bool) -> Iterator[bool]:
    """For each tensor in a value, in order, whether it is part of a cache."""
    match value:
        case Items(items=items):
            for item in items:
                yield from _cached(item, inside=inside)
        case Entries(entries=entries):
            for key, item in entries:
                yield from _cached(item, inside=inside or key in _CACHE_NAMES)
        case Fields(class_name=name, fields=fields):
            inside = inside or "Cache" in name.rpartition(".")[2]
            for field, item in fields:
                yield from _cached(item, inside=inside or field in _CACHE_NAMES)
        case _:
            for _ in tensors_in(value):
                yield inside

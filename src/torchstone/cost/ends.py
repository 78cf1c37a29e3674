"""What was there before the first op of a trace, and what is there after the last one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from torchstone.cost.traffic import extent_bytes
from torchstone.record.trace import Trace
from torchstone.record.value import Entries, Fields, Items, Value, tensors_in

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
    kept: frozenset[int]  # those that the model gives back
    caches_in: frozenset[int]
    caches_out: frozenset[int]


def find_ends(trace: Trace) -> Ends:
    """Look at what the root was given, holds and gave."""
    table = trace.tensors
    extents = list(map(extent_bytes, table.specs))
    names: dict[int, str] = {}
    sizes: dict[int, int] = {}
    weights = set()
    for external in table.external:
        tensor = external.tensor
        storage = table.storage_of[tensor]
        extent = extents[table.spec_of[tensor]] or 0
        if storage not in names:
            names[storage], sizes[storage] = external.name, extent
        else:
            sizes[storage] = max(sizes[storage], extent)
        if external.kind in _WEIGHTS:
            weights.add(storage)
    kept, caches_out, caches_in = _given_and_made(trace)
    return Ends(
        extents=extents,
        names=names,
        sizes=sizes,
        weights=frozenset(weights),
        kept=frozenset(kept),
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

"""What was there before the first op of a trace, and what is there after the last one."""

import re
from functools import cache

from torchstone.cost.registry import extent_bytes
from torchstone.record.base import Record
from torchstone.record.module import ModuleCall
from torchstone.record.tensor import ExternalTensor, TensorSpec
from torchstone.record.trace import Trace
from torchstone.record.value import Entries, Fields, Items, Value

CACHE_NAMES = frozenset(
    (
        "past_key_values",
        "past_key_value",
        "encoder_past_key_values",
        "past_buckets_states",
        "cache_params",
        "kv_cache",
        "cache",
        "mems",
        "state",
    )
)
_WEIGHTS = frozenset(("parameter", "buffer", "constant"))
_STATES = ("_state", "_states")  # endings of attributes
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|(?<=\[)\d+(?=\])")


class Ends(Record, frozen=True, kw_only=True):
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
    names: dict[int, str] = {}
    sizes: dict[int, int] = {}
    weights: set[int] = set()
    states: set[int] = set()
    for external in table.external:
        tensor, kind = external.tensor, external.kind
        storage, extent = table.storage_of[tensor], extents[table.spec_of[tensor]] or 0
        if storage not in names:
            names[storage], sizes[storage] = external.name, extent
        elif extent > sizes[storage]:
            sizes[storage] = extent
        if kind in _WEIGHTS:
            (states if kind == "constant" and is_state(external) else weights).add(storage)
    kept, caches_out, caches_in = _given_and_made(trace)
    gradients = frozenset(map(table.storage_of.__getitem__, table.gradients.values()))
    return Ends(
        extents=extents,
        names=names,
        sizes=sizes,
        weights=frozenset(weights),
        kept=frozenset(kept) | gradients,
        gradients=gradients,
        caches_in=frozenset(caches_in | states),
        caches_out=frozenset(caches_out),
    )


def is_state(external: ExternalTensor) -> bool:
    """Whether a module keeps a tensor as an attribute from one step to the next, as recurrences do."""
    return external.kind == "constant" and external.name.endswith(_STATES)


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
        _mark_cached(argument.value, given, inside=argument.name in CACHE_NAMES)
    outputs = {storage_of[tensor] for tensor in root.outputs}
    caches_out = {storage_of[tensor] for tensor in cached_outputs(root)}
    caches_in = {storage_of[tensor] for tensor, cached in zip(root.inputs, given, strict=False) if cached}
    return outputs, caches_out, caches_in


def cached_outputs(root: ModuleCall) -> list[int]:
    """The tensors of a cache among those that a call gives back."""
    made: list[bool] = []
    _mark_cached(root.signature.output, made, inside=False)
    return [tensor for tensor, cached in zip(root.outputs, made, strict=False) if cached]


def _mark_cached(value: Value, marks: list[bool], *, inside: bool) -> None:
    """Add for each tensor in a value, in order, whether it is part of a cache."""
    if isinstance(value, TensorSpec):
        marks.append(inside)
    elif isinstance(value, Items):
        for item in value.items:
            _mark_cached(item, marks, inside=inside)
    elif isinstance(value, Entries):
        for key, item in value.entries:
            _mark_cached(item, marks, inside=inside or key in CACHE_NAMES)
    elif isinstance(value, Fields):
        inside = inside or "Cache" in value.class_name.rpartition(".")[2]
        for field, item in value.fields:
            _mark_cached(item, marks, inside=inside or field in CACHE_NAMES)

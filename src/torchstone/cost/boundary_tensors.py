"""What was there before the first op of a trace, and what is there after the last one."""

import re
from functools import cache

from torchstone.cost.registry import extent_bytes
from torchstone.record.base import Record
from torchstone.record.module import ModuleCall
from torchstone.record.tensor import ExternalTensor, TensorSpec, TensorTable
from torchstone.record.trace import Trace
from torchstone.record.value import Entries, Fields, Items, Value, tensors_in

_CACHE_NAME = re.compile(
    r"(encoder_)?past(_key_values?|_keys?|_kvs?|_buckets_states)?|layer_past|presents?(_key_values?)?|cache_params|mems|state"
    r"|caches?|caches?_(kv|[kv]|keys?|values?)|(\w+_)?(kv|[kv]|keys?|values?)_?caches?"
)
_WEIGHTS = frozenset(("parameter", "buffer", "constant"))
_STATE_NAME = re.compile(r"\w*_states?")  # of attributes
_KEPT_NAME = re.compile(r"\w*(cache|state|mem)\w*")  # of what a module writes to
_BATCH_TOKENS_WIDTH = 3
_APPEND = "aten.cat.default"
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|(?<=\[)\d+(?=\])")


class Ends(Record, frozen=True, kw_only=True):
    """Pieces of memory, by storage number."""

    extents: list[int | None]  # of each spec of the trace: bytes up to its last element
    names: dict[int, str]  # those that were there before the first op
    sizes: dict[int, int]  # as far as the tensors that were there reach
    weights: frozenset[int]
    replaced: frozenset[int]  # those in whose place the model put others while it ran
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
    lasting: set[int] = set()
    given_packed: set[int] = set()
    for external in table.external:
        tensor, kind = external.tensor, external.kind
        storage, extent = table.storage_of[tensor], extents[table.spec_of[tensor]] or 0
        if storage not in names:
            names[storage], sizes[storage] = external.name, extent
        elif extent > sizes[storage]:
            sizes[storage] = extent
        if kind in _WEIGHTS:
            weights.add(storage)
        elif table.specs[table.spec_of[tensor]].is_packed:
            given_packed.add(storage)  # whose parts were there, too
        if external.lasts:
            lasting.add(storage)
    states = {table.storage_of[one.tensor] for one in own_states(trace, table)}
    kept, caches_out, caches_in = _given_and_made(trace)
    if caches_in and not caches_out:
        caches_out = _grown(trace, caches_in, kept) | _alike(trace)
    kept |= (states | caches_in) & written_storages(trace) if states or caches_in else set()
    left = {table.storage_of[tensor] for tensor in left_states(trace, table).values()} - names.keys()
    kept |= left | _staying(trace, caches_in)
    caches_out |= left
    gradients = frozenset(map(table.storage_of.__getitem__, table.gradients.values()))
    return Ends(
        extents=extents,
        names=names,
        sizes=sizes,
        weights=frozenset(weights - states - given_packed),
        replaced=frozenset(names.keys() - lasting),
        kept=frozenset(kept) | gradients,
        gradients=gradients,
        caches_in=frozenset(caches_in | states),
        caches_out=frozenset(caches_out),
    )


def is_cache_name(name: object) -> bool:
    """Whether an argument, a field or a key of this name has what a model keeps from one step to the next."""
    return isinstance(name, str) and _CACHE_NAME.fullmatch(name) is not None


def own_states(trace: Trace, table: TensorTable) -> list[ExternalTensor]:
    """What modules themselves keep from one step to the next.

    Attributes that are named as states; attributes and buffers named as a KV cache; and those that the run writes to,
    such as a cache of fixed size. Statistics of a norm, which are written in training, have one dimension.
    `table` has the tensors of the trace.
    """
    found: list[ExternalTensor] = []
    larger: list[ExternalTensor] = []
    for external in table.external:
        if external.kind not in ("buffer", "constant"):
            continue
        name, spec = external.name.rpartition(".")[2], table.specs[table.spec_of[external.tensor]]
        if external.kind == "constant" and _STATE_NAME.fullmatch(name):
            found.append(external)
        elif "float" in spec.dtype and len(spec.shape) > 1:
            has_name = _CACHE_NAME.fullmatch(name) and name != "cache"  # which tables of positions are called, too
            if has_name:
                found.append(external)
            elif len(spec.shape) >= _BATCH_TOKENS_WIDTH or _KEPT_NAME.fullmatch(name):
                larger.append(external)
    written = written_storages(trace) if larger else set()
    return [*found, *(one for one in larger if table.storage_of[one.tensor] in written)]


def left_states(trace: Trace, table: TensorTable) -> dict[str, int]:
    """By name: the states that modules hold after the run and did not hold before, and those in caches not given back.

    They are named as states and as a KV cache, as those are that were there before.
    """
    found = {}
    for name, tensor in (trace.recorded_tensors.left or {}).items():
        spec = table.specs[table.spec_of[tensor]]
        if has_state_name(name) and "float" in spec.dtype and len(spec.shape) > 1:
            found[name] = tensor
    return found


def _staying(trace: Trace, caches_in: set[int]) -> set[int]:
    """The storages of what a cache has from before a run that put other tensors into it, such as quantized rows."""
    left = trace.recorded_tensors.left or {}
    objects = {name.rpartition("[")[0] for name in left if name.endswith("]")}
    table = trace.tensors
    return {
        table.storage_of[one.tensor] for one in (table.external if objects else ())
        if one.kind == "input" and one.name not in left and one.name.rpartition("[")[0] in objects
    } & caches_in  # fmt: skip


def has_state_name(path: str) -> bool:
    """Whether an attribute or argument is named as a state, or as a KV cache.

    Modules call tables of positions a cache, too, but nothing that has parts or is an argument.
    """
    name, has_parts, _ = path.rpartition(".")[2].partition("[")
    return _STATE_NAME.fullmatch(name) is not None or (is_cache_name(name) and (name != "cache" or bool(has_parts)))


def written_storages(trace: Trace) -> set[int]:
    """The storages that ops write to in place."""
    if not trace.recorded_ops.writes:
        return set()
    storage_of = trace.tensors.storage_of
    return {storage_of[tensor] for tensors in trace.ops.writes.values() for tensor in tensors}


def _grown(trace: Trace, caches: set[int], kept: set[int]) -> set[int]:
    """What is given back with a cache that came in at its front, in a result that does not name it."""
    ops, storage_of = trace.ops, trace.tensors.storage_of
    appends = [number for number, one in enumerate(ops.signatures) if one.op == _APPEND]
    rows = (row for row, signature in enumerate(ops.signature_of) if signature in appends) if appends else ()
    made = {storage_of[ops.outputs[row][0]] for row in rows if storage_of[ops.inputs[row][0]] in caches}
    return made & kept


def _alike(trace: Trace) -> set[int]:
    """What is given back in the form of a cache that came in, in a result that does not name it.

    A state has the form of many a tensor, so it is the last result of several that has it, as in `return y, state`.
    """
    root = trace.module_calls[0]
    caches = [one.value for one in root.signature.arguments if is_cache_name(one.name)]
    given = root.signature.output
    results = given.items if isinstance(given, Items) else ()
    place, found = 0, set[int]()
    for number, result in enumerate(results):
        tensors = [trace.tensors.storage_of[one] for one in root.outputs[place : place + len(tensors_in(result))]]
        place += len(tensors)
        if number and tensors and any(_has_form(result, one) for one in caches):
            found = set(tensors)
    return found


def _has_form(value: Value, before: Value) -> bool:
    """Whether two values have one structure, and their tensors one element type and one shape but for one dimension."""
    if isinstance(value, TensorSpec) and isinstance(before, TensorSpec):
        others = [one for one, other in zip(value.shape, before.shape, strict=False) if one != other]
        return value.dtype == before.dtype and len(value.shape) == len(before.shape) and len(others) <= 1
    if isinstance(value, Items) and isinstance(before, Items):
        return len(value.items) == len(before.items) and all(map(_has_form, value.items, before.items))
    if isinstance(value, Entries) and isinstance(before, Entries):
        pairs = zip(value.entries, before.entries, strict=False)
        return len(value.entries) == len(before.entries) and all(
            name == other and _has_form(one, old) for (name, one), (other, old) in pairs
        )
    if isinstance(value, Fields) and isinstance(before, Fields):
        return value.class_name == before.class_name
    return not tensors_in(value) and not tensors_in(before)


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
        _mark_cached(argument.value, given, inside=is_cache_name(argument.name))
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
            _mark_cached(item, marks, inside=inside or is_cache_name(key))
    elif isinstance(value, Fields):
        inside = inside or "Cache" in value.class_name.rpartition(".")[2]
        for field, item in value.fields:
            _mark_cached(item, marks, inside=inside or is_cache_name(field))

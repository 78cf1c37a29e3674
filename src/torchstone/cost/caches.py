"""The caches of a trace, layer by layer: what each holds between two steps, and what that takes in blocks of tokens.

A cache is described by the objects that the root was given and gave back. Which dimension counts tokens is known for
the cache layers of transformers alone; tensors of any other structure count as they are and are called so.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import prod

import msgspec

from torchstone.cost.boundary_tensors import is_cache_name, left_states, own_states, written_storages
from torchstone.cost.registry import find_price
from torchstone.cost.storages import Storages
from torchstone.record.base import Record
from torchstone.record.cost import CacheMemory, CachePart, CachePartKind, Kind
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace
from torchstone.record.value import Entries, Fields, Items, Value

_HOLD_TOKENS = frozenset(("keys", "values", "indexer_keys"))  # [..., tokens, width]
_COUNTS = ("int64", "uint64", "bool")  # element types of lengths, positions and masks, which are not kept
_BYTES = ("int8", "uint8")  # quantized values, as those of other integers are where they have a row for each token
_CROSS = "cross_attention_cache"
_TOKEN_RANK = 3
_VALUES = "values"
_MOVES = (Kind.VIEW, Kind.COPY)


class _Layer(Record, frozen=True, kw_only=True):
    """The object that holds the tensors of one layer."""

    path: str
    has_window: bool = False
    seen: int | None = None  # tokens of the sequence so far; None: as many as it holds


class _Spot(Record, frozen=True, kw_only=True):
    """A tensor in the description of a cache."""

    path: str
    name: str  # of the field
    spec: TensorSpec
    layer: _Layer | None  # None: in no layer of transformers


class _Kept(Record, frozen=True, kw_only=True):
    """One tensor of a cache."""

    path: str  # where it lies in the cache: the same before and after a step
    tensor: int
    spec: TensorSpec
    layer: _Layer
    kind: CachePartKind

    @property
    def tokens(self) -> int | None:
        """The tokens that it has room for; None for a state."""
        holds = self.kind not in (CachePartKind.STATE, CachePartKind.OTHER)
        return int(self.spec.shape[-2]) if holds else None

    def size_bytes(self, block: int | None, tile: int | None = None) -> int:
        """Its own bytes; in blocks of tokens, those of all blocks that hold one of its tokens, each in whole tiles."""
        tokens = self.tokens
        if block is None or tokens is None:
            return self.spec.size_bytes or 0
        side = tile or 1
        *outer, _, width = self.spec.shape
        # A block is a piece of memory of its own: it shares no tile of a format such as bfloat8_b with another one.
        shape = (*outer, -(-block // side) * side, -(-width // side) * side)
        one = msgspec.structs.replace(self.spec, shape=shape, stride=None, storage_offset=0, stored_bytes=None)
        return _blocks(tokens, self.layer.seen or tokens, block) * (one.size_bytes or 0)


def _blocks(tokens: int, seen: int, block: int) -> int:
    """How many blocks have one of the last tokens of a sequence: a window may begin in the middle of a block."""
    return -(-seen // block) - (seen - tokens) // block if tokens else 0


def cache_memory(trace: Trace, block: int | None = None) -> CacheMemory | None:
    """What the model keeps before the step, or after a prompt; None where it neither gets nor gives a cache."""
    own = _attributes(trace)
    before, after = _before(trace, own), _after(trace)
    kept = before or after
    if not kept:
        return None
    sizes: defaultdict[tuple[CachePartKind, int | None], int] = defaultdict(int)
    layers: defaultdict[tuple[CachePartKind, int | None], set[str]] = defaultdict(set)
    for one in kept:
        sizes[one.kind, one.tokens] += one.size_bytes(block)
        layers[one.kind, one.tokens].add(one.layer.path)
    parts = [
        CachePart(kind=kind, tokens=tokens, layers=len(layers[kind, tokens]), size_bytes=size)
        for (kind, tokens), size in sizes.items()
    ]
    return CacheMemory(
        when="before the step" if before else "after the prompt",
        parts=tuple(sorted(parts, key=lambda part: (-part.size_bytes, part.kind, part.tokens or 0))),
        block_size=block,
        head_copies=_head_copies(trace, after),
        replaced=_replaced(trace, own),
    )


def _replaced(trace: Trace, own: Sequence[_Kept]) -> int:
    """How many of the tensors that modules keep are not written to, and may be replaced in a way not recorded."""
    if trace.recorded_tensors.left is not None or not own:
        return 0
    written = written_storages(trace)
    return sum(trace.tensors.storage_of[one.tensor] not in written for one in own)


def _head_copies(trace: Trace, after: Sequence[_Kept]) -> int:
    """By how much the values of a step are expanded before they are kept: of the first layer, as layers are alike.

    Values are followed back because keys are rotated in between. A larger first dimension is that of the batch.
    """
    own = (CachePartKind.FULL, CachePartKind.WINDOW)
    tensor = next((one.tensor for one in after if one.kind in own and one.path.endswith(_VALUES)), None)
    ops, table = trace.recorded_ops, trace.tensors
    made: dict[int, int] = {}
    for row, outputs in enumerate(ops.outputs if tensor is not None else ()):
        for one in outputs:
            made.setdefault(one, row)
    copies, before = 1, len(ops)
    while tensor is not None and made.get(tensor, before) < before:
        before = made[tensor]
        op, inputs = ops.signatures[ops.signature_of[before]].op, ops.inputs[before]
        entry = find_price(op)
        if entry is None or entry.kind not in _MOVES or not inputs:
            break
        small, large = table[inputs[-1]].spec.shape, table[tensor].spec.shape
        if op != "aten.cat.default" and len(small) == len(large) and small[:1] == large[:1]:
            copies *= max(prod(large) // max(prod(small), 1), 1)
        tensor = inputs[-1]  # of old tokens and new ones, the new
    return copies


def in_blocks(trace: Trace, storages: Storages, block: int | None, tile: int | None = None) -> Storages:
    """The memory of a trace whose cache lies in blocks of tokens and grows in place; the same where it does not."""
    if block is None:
        return storages
    storage_of = trace.tensors.storage_of
    sizes = list(storages.sizes)
    before = {one.path: one for one in _before(trace, _attributes(trace))}
    for one in before.values():
        if one.tokens is not None:
            sizes[storage_of[one.tensor]] = one.size_bytes(block, tile)
    for one in _after(trace):
        known = before.get(one.path)
        if one.tokens is None:
            continue
        if known is None:
            sizes[storage_of[one.tensor]] = one.size_bytes(block, tile)
        elif storage_of[one.tensor] != storage_of[known.tensor]:  # a new block at most: the rest is there
            sizes[storage_of[one.tensor]] = max(one.size_bytes(block, tile) - known.size_bytes(block, tile), 0)
    return msgspec.structs.replace(storages, sizes=sizes, cache_inputs=frozenset())


def _before(trace: Trace, own: list[_Kept]) -> list[_Kept]:
    if not len(trace.recorded_calls):
        return []
    found = (spot for _, spots in _given(trace) for spot in spots)
    return _numbered(trace, found, trace.recorded_calls[0].inputs) + own


def _attributes(trace: Trace) -> list[_Kept]:
    """States that modules keep as attributes."""
    held = trace.recorded_tensors.external  # of which those in copies are copies
    if not any(
        one.kind == "constant" or (one.kind == "buffer" and len(trace.held_spec(one.tensor).shape) > 1) for one in held
    ):
        return []
    table = trace.tensors
    return [
        _Kept(
            path=one.name,
            tensor=one.tensor,
            spec=table[one.tensor].spec,
            layer=_Layer(path=one.name.rpartition(".")[0]),
            kind=CachePartKind.STATE if one.kind == "constant" else CachePartKind.OTHER,
        )
        for one in own_states(trace, table)
    ]


def _after(trace: Trace) -> list[_Kept]:
    if not len(trace.recorded_calls):
        return []
    root = trace.recorded_calls[0]
    given = _numbered(trace, _walk(root.signature.output, "", inside=False), root.outputs)
    return given + _left(trace)


def _left(trace: Trace) -> list[_Kept]:
    """What modules and caches that were given hold at the end, and the model did not give back."""
    if not trace.recorded_tensors.left:
        return []
    table = trace.tensors
    spots = {f"{name}[{place}]": spot for name, found in _given(trace) for place, spot in enumerate(found)}
    found = []
    for name, tensor in left_states(trace, table).items():
        spec, spot = table[tensor].spec, spots.get(name)
        if spot is not None:  # what stood there before the run
            layer = spot.layer or _Layer(path=spot.path)
            if layer.seen is not None:  # a window that is full has as many tokens as before, and saw one more
                layer = msgspec.structs.replace(layer, seen=layer.seen + _grown(spot.spec, spec))
            found.append(_Kept(path=spot.path, tensor=tensor, spec=spec, layer=layer, kind=_kind(spot)))
            continue
        layer = _Layer(path=name.rpartition(".")[0] or name)
        kind = CachePartKind.OTHER if name.endswith("]") else CachePartKind.STATE
        found.append(_Kept(path=name, tensor=tensor, spec=spec, layer=layer, kind=kind))
    return found


def _grown(before: TensorSpec, after: TensorSpec) -> int:
    """The tokens that a step adds to a layer, one at least."""
    same_rank = len(before.shape) == len(after.shape) >= _TOKEN_RANK
    return max(after.shape[-2] - before.shape[-2], 1) if same_rank else 1


def _given(trace: Trace) -> list[tuple[str, list[_Spot | None]]]:
    """Of each argument of the root the tensors in it."""
    root = trace.recorded_calls[0]  # the call of the root is no copy
    return [
        (argument.name, list(_walk(argument.value, argument.name, inside=is_cache_name(argument.name))))
        for argument in root.signature.arguments
    ]


def _numbered(trace: Trace, spots: Iterator[_Spot | None], tensors: Sequence[int]) -> list[_Kept]:
    """The tensors with their numbers, each piece of memory once: layers may share what they keep."""
    found = [
        (spot, tensor)
        for spot, tensor in zip(spots, tensors, strict=False)
        if spot is not None and not _is_counter(spot.spec)
    ]
    if not found:
        return []
    table = trace.tensors
    kept: dict[tuple[int, int], _Kept] = {}  # by storage and where in it
    for spot, tensor in found:
        layer = spot.layer or _Layer(path=spot.path)
        kind = _kind(spot)
        spec = table[tensor].spec  # not that of the call, which has the element type of the capture
        one = _Kept(path=spot.path, tensor=tensor, spec=spec, layer=layer, kind=kind)
        kept.setdefault((table.storage_of[tensor], spec.storage_offset), one)
    return list(kept.values())


def _is_counter(spec: TensorSpec) -> bool:
    """Whether it counts or marks tokens, instead of keeping something of them."""
    if "int" not in spec.dtype or spec.dtype in _COUNTS:
        return spec.dtype in _COUNTS
    return len(spec.shape) < (_TOKEN_RANK - 1 if spec.dtype in _BYTES else _TOKEN_RANK)


def _kind(spot: _Spot) -> CachePartKind:
    if spot.layer is None:
        return CachePartKind.OTHER
    if spot.name not in _HOLD_TOKENS or len(spot.spec.shape) < _TOKEN_RANK:
        return CachePartKind.STATE
    if _CROSS in spot.path:
        return CachePartKind.CROSS
    return CachePartKind.WINDOW if spot.layer.has_window else CachePartKind.FULL


def _walk(
    value: Value, path: str, *, inside: bool, name: str = "", layer: _Layer | None = None
) -> Iterator[_Spot | None]:
    """Each tensor in a value, in order, with its place; None where it is no part of a cache."""
    if isinstance(value, TensorSpec):
        yield _Spot(path=path, name=name, spec=value, layer=layer) if inside else None
    elif isinstance(value, Items):
        for number, item in enumerate(value.items):
            yield from _walk(item, f"{path}[{number}]", inside=inside, name=name, layer=layer)
    elif isinstance(value, Entries):
        for key, item in value.entries:
            below = inside or is_cache_name(key)
            yield from _walk(item, f"{path}[{key}]" if inside else str(key), inside=below, name=name, layer=layer)
    elif isinstance(value, Fields):
        kind = value.class_name.rpartition(".")[2]
        inside = inside or "Cache" in kind
        layer = _layer(value, path) if inside and kind.endswith("Layer") else layer
        for field, item in value.fields:
            below = inside or is_cache_name(field)
            yield from _walk(item, f"{path}.{field}" if inside else field, inside=below, name=field, layer=layer)


def _layer(value: Fields, path: str) -> _Layer:
    known = dict(value.fields)
    seen = known.get("cumulative_length")
    return _Layer(
        path=path,
        has_window="SlidingWindow" in value.class_name,
        seen=seen if type(seen) is int else None,
    )

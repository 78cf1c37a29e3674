"""One module call of a trace -> the memory that is held at each of its places, by where it was made."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

from torchstone.record.module import ModuleCall
from torchstone.record.tensor import TensorSpec, element_bits
from torchstone.record.trace import Trace

_LAYER_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")

_BITS = 8

Place = tuple[str, int, str]  # the module with layer numbers left open, and which time which op runs in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The memory of a trace by storage number: bytes, first and last op, and whether it holds activations."""

    sizes: Sequence[int]
    first: Sequence[int]  # negative: there before the first op
    last: Sequence[int]
    counted: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Moment:
    """What is held while one op runs, by where it was made; what was given, by where it is first used."""

    total_bytes: int
    parts: Mapping[Place, int]


def fullest_moments(trace: Trace, pieces: Pieces, row: int = 0) -> dict[Place, Moment]:
    """For each place in a module call, its op during which most is held; repeated layers are one place."""
    call = trace.module_calls[row]
    places = _places(trace, call)
    if not places:
        return {}
    spans = _spans(trace, pieces, call)
    sizes = _sizes(trace, pieces, call, spans)
    origins = _origins(trace, spans, call, places)
    begins, ends = _changes(spans, call)
    held: set[int] = set()
    fullest: dict[Place, Moment] = {}
    for offset, place in enumerate(places):
        held.update(begins[offset])
        total = sum(sizes[storage] for storage in held)
        if place not in fullest or total >= fullest[place].total_bytes:
            fullest[place] = Moment(total, _by_origin(held, sizes, origins))
        held.difference_update(ends[offset])
    return fullest


def _places(trace: Trace, call: ModuleCall) -> list[Place]:
    seen: dict[tuple[int, str], int] = {}
    places = []
    prefix = trace.modules[call.module].path
    for index in range(call.first_op, call.end_op):
        op = trace.ops[index]
        times = seen[op.module_call, op.op] = seen.get((op.module_call, op.op), 0) + 1
        path = trace.module_path_of(op).removeprefix(prefix)
        places.append((_folded(path), times, op.op))
    return places


@cache
def _folded(path: str) -> str:
    return _LAYER_NUMBER.sub("*", path)


def _spans(trace: Trace, pieces: Pieces, call: ModuleCall) -> dict[int, tuple[int, int]]:
    """The first and last op of the call during which each piece is held; what it was not given is left out."""
    storage_of = trace.tensors.storage_of
    used = {
        storage_of[tensor]
        for index in range(call.first_op, call.end_op)
        for tensor in (*trace.ops.inputs[index], *trace.ops.outputs[index])
    }
    if call.parent < 0:
        used.update(storage for storage, first in enumerate(pieces.first) if first < 0)
    arguments = {storage_of[tensor] for tensor in call.inputs if call.parent >= 0}  # also a buffer of somebody else
    given_back = {storage_of[tensor] for tensor in call.outputs}
    spans = {}
    for storage in used:
        first, last = pieces.first[storage], pieces.last[storage]
        unseen = last < call.first_op or first >= call.end_op
        counted = pieces.counted[storage] or storage in arguments
        if unseen or not counted or not pieces.sizes[storage]:
            continue
        is_given = first < call.first_op
        leaves_early = last < call.end_op and (first < 0 or not is_given) and storage not in given_back
        spans[storage] = (max(first, call.first_op), last if leaves_early else call.end_op - 1)
    return spans


def _sizes(trace: Trace, pieces: Pieces, call: ModuleCall, spans: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """The bytes of each piece; of what an inner call was given, only those of the tensors that it looks at."""
    sizes = {storage: pieces.sizes[storage] for storage in spans}
    if call.parent < 0:
        return sizes
    looked_at: dict[int, int] = {}
    for index in range(call.first_op, call.end_op):
        for tensor in trace.ops.inputs[index]:
            storage = trace.tensors.storage_of[tensor]
            if storage in sizes and pieces.first[storage] < call.first_op:
                bytes_of_it = _distinct_bytes(trace.tensors[tensor].spec)
                looked_at[storage] = max(looked_at.get(storage, 0), bytes_of_it)
    return {storage: min(size, looked_at.get(storage, size)) for storage, size in sizes.items()}


def _distinct_bytes(spec: TensorSpec) -> int:
    strides = spec.stride or (1,) * len(spec.shape)
    elements = prod(size for size, stride in zip(spec.shape, strides, strict=True) if stride)
    return elements * (element_bits(spec.dtype) or 0) // _BITS


def _origins(
    trace: Trace, spans: Mapping[int, tuple[int, int]], call: ModuleCall, places: Sequence[Place]
) -> dict[int, Place]:
    """Where each piece was made, or where one that was given is used first."""
    storage_of = trace.tensors.storage_of
    origins: dict[int, Place] = {}
    for index in range(call.first_op, call.end_op):
        path, number, op = places[index - call.first_op]
        for tensor in trace.ops.inputs[index]:
            origins.setdefault(storage_of[tensor], (path, number, f"given to {op}"))
        for tensor in trace.ops.outputs[index]:
            origins.setdefault(storage_of[tensor], (path, number, op))
    return {storage: origins.get(storage, ("", 0, "given")) for storage in spans}


def _changes(spans: Mapping[int, tuple[int, int]], call: ModuleCall) -> tuple[list[list[int]], list[list[int]]]:
    """The pieces that begin and end with each op of the call."""
    begins: list[list[int]] = [[] for _ in range(call.first_op, call.end_op)]
    ends: list[list[int]] = [[] for _ in begins]
    for storage, (first, last) in spans.items():
        begins[first - call.first_op].append(storage)
        ends[last - call.first_op].append(storage)
    return begins, ends


def _by_origin(held: Iterable[int], sizes: Mapping[int, int], origins: Mapping[int, Place]) -> dict[Place, int]:
    parts: dict[Place, int] = {}
    for storage in held:
        place = origins[storage]
        parts[place] = parts.get(place, 0) + sizes[storage]
    return parts

"""Observations of module calls: their ops with the values that matter, and when activations are live."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from math import prod

import msgspec

from torchstone.formula.derive.parameter_binding import Reading, read_call
from torchstone.record.base import Record
from torchstone.record.cost import CostTable, SignatureCost
from torchstone.record.module import ModuleCall
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec, element_bits
from torchstone.record.trace import Trace
from torchstone.record.value import Argument, Entries, Fields, Items, Value

# The numbers inside an op call: collect them, exchange them, or look at leading sizes as one.


_Visit = Callable[[int], int]
_Look = Callable[[TensorSpec], TensorSpec]


def numbers_in(signature: OpSignature) -> list[int]:
    """The sizes and whole-number arguments of a call, in order."""
    numbers: list[int] = []

    def note(number: int) -> int:
        numbers.append(number)
        return number

    with_numbers(signature, note)
    return numbers


def with_numbers(signature: OpSignature, visit: _Visit) -> OpSignature:
    """The same call with every size and whole-number argument exchanged; strides only tell which sizes are repeated."""

    def look(spec: TensorSpec) -> TensorSpec:
        strides = None if spec.stride is None else tuple(min(stride, 1) for stride in spec.stride)
        sizes = tuple(visit(size) for size in spec.shape)
        return msgspec.structs.replace(spec, shape=sizes, stride=strides, storage_offset=0)

    return _exchanged(signature, visit, look)


def flattened(signature: OpSignature, leading: tuple[int, ...]) -> OpSignature:
    """The same call with these leading sizes of every tensor taken as two: what is repeated, and what is there."""
    if not leading:
        return signature
    length = len(leading)

    def look(spec: TensorSpec) -> TensorSpec:
        if spec.shape[:length] != leading or spec.stride is None:
            return spec
        pairs = list(zip(leading, spec.stride, strict=False))
        repeated = prod(size for size, stride in pairs if stride == 0)
        there = prod(size for size, stride in pairs if stride)
        shape = (repeated, there, *spec.shape[length:])
        return msgspec.structs.replace(spec, shape=shape, stride=(0, 1, *spec.stride[length:]))

    return _exchanged(signature, lambda number: number, look)


def _exchanged(signature: OpSignature, visit: _Visit, look: _Look) -> OpSignature:
    arguments = tuple(
        Argument(name=argument.name, value=_value(argument.value, visit, look), position=argument.position)
        for argument in signature.arguments
    )
    return OpSignature(op=signature.op, arguments=arguments, output=_value(signature.output, visit, look))


def _value(value: Value, visit: _Visit, look: _Look) -> Value:
    if isinstance(value, bool):
        return value
    match value:
        case int():
            return visit(value)
        case TensorSpec():
            return look(value)
        case Items():
            return Items(kind=value.kind, items=tuple(_value(item, visit, look) for item in value.items))
        case Entries():
            return Entries(entries=tuple((key, _value(item, visit, look)) for key, item in value.entries))
        case Fields():
            parts = tuple((name, _value(item, visit, look)) for name, item in value.fields)
            return Fields(class_name=value.class_name, fields=parts)
        case _:
            return value


# One module call of a trace -> the memory that is held at each of its places, by where it was made.


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


# Trace + CostTable -> what each module call cost, with the parameters it was called with.


class Cost(Record, frozen=True, kw_only=True):
    """What was counted."""

    flops: int = 0
    reads: int = 0
    writes: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(flops=self.flops + other.flops, reads=self.reads + other.reads, writes=self.writes + other.writes)


NO_COST = Cost()


class Sample(Record, frozen=True, kw_only=True):
    """One capture of a model or module at one setting, with its costs."""

    trace: Trace
    table: CostTable
    pieces: Pieces | None = None  # None: what is held is not looked at
    known: dict[str, int] = {}  # parameters of the configuration, by name
    held_out: bool = False  # used to check only
    guard: str = ""  # the condition that a formula gets which does not hold here; "": it must hold


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSeen:
    """One op call that ran in a module itself."""

    signature: OpSignature
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """One call of a module inside another."""

    class_name: str
    path: str
    reading: Reading


@dataclass(slots=True, kw_only=True)
class Observation:
    """One module call."""

    class_name: str
    path: str
    reading: Reading
    held_out: bool
    guard: str = ""
    point: dict[str, int] = field(default_factory=dict)  # the coordinates that formulas are fitted in
    own: Cost = NO_COST
    whole: Cost = NO_COST  # with everything inside
    ops: list[OpSeen] = field(default_factory=list)
    children: list[Child] = field(default_factory=list)
    unpriced: set[str] = field(default_factory=set)  # ops without a price, also inside
    held: tuple[TensorSpec, ...] = ()  # its own parameters and buffers
    held_bytes: int = 0  # of these and everything inside, each piece of memory once
    look: Callable[[], dict[Place, Moment]] | None = None
    _moments: dict[Place, Moment] | None = None

    @property
    def moments(self) -> dict[Place, Moment]:
        """The fullest moment of every place; none where memory was not looked at, or no op ran."""
        if self._moments is None:
            self._moments = {} if self.look is None else self.look()
        return self._moments

    @property
    def peak_bytes(self) -> int | None:
        """The most bytes of activations held at one time; None where that is not known."""
        return max((moment.total_bytes for moment in self.moments.values()), default=None)


def observe(sample: Sample) -> list[Observation]:
    """Every module call of a sample, in the order they began."""
    trace = sample.trace
    held = _held(trace)
    seen = [
        Observation(
            class_name=trace.modules[call.module].class_name,
            path=trace.modules[call.module].path,
            reading=read_call(trace, call, sample.known),
            held_out=sample.held_out,
            guard=sample.guard,
            held=held[call.module][0],
            held_bytes=held[call.module][1],
            look=None if sample.pieces is None else partial(fullest_moments, trace, sample.pieces, call.index),
        )
        for call in trace.module_calls
    ]
    for index, signature in enumerate(trace.ops.signature_of):
        row = trace.ops.module_calls[index]
        if row >= 0:
            _add_op(seen[row], trace.ops.signatures[signature], sample.table.signatures[signature])
    _roll_up(seen, trace.module_calls.parents)
    return seen


def _roll_up(seen: list[Observation], parents: Sequence[int]) -> None:
    """Calls stand in the order they began, so that inner ones come later."""
    for row in range(len(seen) - 1, -1, -1):
        seen[row].whole += seen[row].own
        if parents[row] >= 0:
            parent = seen[parents[row]]
            parent.whole += seen[row].whole
            parent.unpriced |= seen[row].unpriced
            one = seen[row]
            parent.children.append(Child(class_name=one.class_name, path=one.path, reading=one.reading))
    for one in seen:
        one.children.reverse()


def _held(trace: Trace) -> list[tuple[tuple[TensorSpec, ...], int]]:
    """For each module: its own tensors and those of parts that are never called; and the bytes of all inside it."""
    own = [[trace.tensors[one.tensor] for one in (*module.parameters, *module.buffers)] for module in trace.modules]
    called = set(trace.module_calls.modules)
    storages: list[dict[int, int]] = [{one.storage: one.spec.size_bytes or 0 for one in many} for many in own]
    for index in range(len(trace.modules) - 1, 0, -1):  # modules stand in pre-order
        parent = trace.modules[index].parent
        storages[parent].update(storages[index])
        if index not in called:  # nobody else accounts for what it holds
            own[parent].extend(own[index])
    return [(tuple(one.spec for one in many), sum(sizes.values())) for many, sizes in zip(own, storages, strict=True)]


def _add_op(seen: Observation, signature: OpSignature, priced: SignatureCost) -> None:
    if priced.reason:
        seen.unpriced.add(signature.op)
    cost = Cost(flops=priced.flops, reads=priced.bytes_read, writes=priced.bytes_written)
    if cost != NO_COST:
        seen.own += cost
        seen.ops.append(OpSeen(signature=flattened(signature, seen.reading.flat), cost=cost))


def by_class(observations: Iterable[Observation]) -> dict[str, list[Observation]]:
    """Observations by the class of the module."""
    grouped: dict[str, list[Observation]] = {}
    for seen in observations:
        grouped.setdefault(seen.class_name, []).append(seen)
    return grouped


def children_first(grouped: Mapping[str, list[Observation]]) -> list[str]:
    """Class names in an order in which every class comes after those inside it."""
    inside = {name: {child.class_name for seen in many for child in seen.children} for name, many in grouped.items()}
    ordered: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in ordered or name in above:
            return
        for child in sorted(inside.get(name, ())):
            visit(child, (*above, name))
        ordered.append(name)

    for name in grouped:
        visit(name, ())
    return ordered

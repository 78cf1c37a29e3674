"""Observations of module calls: their parameters, ops and costs, and the activation memory live at each op."""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import groupby
from math import prod

import msgspec

from torchstone.formula.derive.parameter_binding import CallParameters, bind_parameters
from torchstone.record.base import Record
from torchstone.record.cost import CostTable, SignatureCost
from torchstone.record.module import ModuleCall
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec, element_bits
from torchstone.record.trace import Trace
from torchstone.record.value import Argument, Entries, Fields, Items, Value, tensors_in

# --- Numbers inside an op call: collect them, replace them, or merge leading sizes ---


_READS_DIMENSIONS = "aten._fft_"
_Visit = Callable[[int], int]
_MapTensor = Callable[[TensorSpec], TensorSpec]


def numbers_in(signature: OpSignature) -> list[int]:
    """The sizes and whole-number arguments of a call, in order."""
    numbers: list[int] = []

    def note(number: int) -> int:
        numbers.append(number)
        return number

    with_numbers(signature, note)
    return numbers


def with_numbers(signature: OpSignature, visit: _Visit) -> OpSignature:
    """The same call with every size and whole-number argument replaced; strides become 0 (repeated) or 1."""

    def map_tensor(spec: TensorSpec) -> TensorSpec:
        strides = None if spec.stride is None else tuple(min(stride, 1) for stride in spec.stride)
        sizes = tuple(visit(size) for size in spec.shape)
        return msgspec.structs.replace(spec, shape=sizes, stride=strides, storage_offset=0)

    return _replaced(signature, visit, map_tensor)


def flattened(signature: OpSignature, leading: tuple[int, ...]) -> OpSignature:
    """The same call with these leading sizes of every tensor merged into two: the repeated ones, and the others.

    A norm of a (B, S, H) tensor costs the same as one of (B * S, H). Merged, calls of different rank line up. The price
    of a Fourier transform reads the sizes along its dimensions, which may be leading ones.
    """
    if not leading or signature.op.startswith(_READS_DIMENSIONS):
        return signature
    length = len(leading)

    def map_tensor(spec: TensorSpec) -> TensorSpec:
        if spec.shape[:length] != leading or spec.stride is None:
            return spec
        pairs = list(zip(leading, spec.stride, strict=False))
        repeated = prod(size for size, stride in pairs if stride == 0)
        there = prod(size for size, stride in pairs if stride)
        shape = (repeated, there, *spec.shape[length:])
        return msgspec.structs.replace(spec, shape=shape, stride=(0, 1, *spec.stride[length:]))

    return _replaced(signature, lambda number: number, map_tensor)


def _replaced(signature: OpSignature, visit: _Visit, map_tensor: _MapTensor) -> OpSignature:
    arguments = tuple(
        Argument(name=argument.name, value=_value(argument.value, visit, map_tensor), position=argument.position)
        for argument in signature.arguments
    )
    return OpSignature(op=signature.op, arguments=arguments, output=_value(signature.output, visit, map_tensor))


def _value(value: Value, visit: _Visit, map_tensor: _MapTensor) -> Value:
    if isinstance(value, bool):
        return value
    match value:
        case int():
            return visit(value)
        case TensorSpec():
            return map_tensor(value)
        case Items():
            return Items(kind=value.kind, items=tuple(_value(item, visit, map_tensor) for item in value.items))
        case Entries():
            return Entries(entries=tuple((key, _value(item, visit, map_tensor)) for key, item in value.entries))
        case Fields():
            parts = tuple((name, _value(item, visit, map_tensor)) for name, item in value.fields)
            return Fields(class_name=value.class_name, fields=parts)
        case _:
            return value


# --- Live activation memory of one module call ---
#
# Calls at different sizes must be comparable op by op. So each op gets a place that does not depend on the sizes: its
# module path with layer numbers folded, and the number of that op's call there. Live memory is kept per place, split by
# the place where each tensor was made: one tensor has a size that is a polynomial, a sum over layers is one as well.


_LAYER_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")

_BITS = 8
_LONG_LIST = 5  # tensors; shorter lists are written out in code

Place = tuple[str, int, str]  # module path with layer numbers folded, number of the call of that op in it, op name


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLifetimes:
    """The storages of a trace by number: bytes, first and last op that needs them, and whether they are activations."""

    sizes: Sequence[int]
    first: Sequence[int]  # negative: allocated before the first op
    last: Sequence[int]
    counted: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Moment:
    """The memory that is live while one op runs, by the place where it was made; inputs by their first use."""

    total_bytes: int
    parts: Mapping[Place, int]


def peak_per_place(trace: Trace, lifetimes: StorageLifetimes, row: int = 0) -> dict[Place, Moment]:
    """For each place in a module call, the moment with the most live memory; repeated layers are one place."""
    call = trace.module_calls[row]
    places = _places(trace, call)
    if not places:
        return {}
    spans = _spans(trace, lifetimes, call)
    sizes = _sizes(trace, lifetimes, call, spans)
    origins = _origins(trace, spans, call, places)
    begins, ends = _changes(spans, call)
    live: set[int] = set()
    peaks: dict[Place, Moment] = {}
    for offset, place in enumerate(places):
        live.update(begins[offset])
        total = sum(sizes[storage] for storage in live)
        if place not in peaks or total >= peaks[place].total_bytes:
            peaks[place] = Moment(total, _by_origin(live, sizes, origins))
        live.difference_update(ends[offset])
    return peaks


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


def _spans(trace: Trace, lifetimes: StorageLifetimes, call: ModuleCall) -> dict[int, tuple[int, int]]:
    """The first and last op of the call during which each storage is live; only storages that the call can reach."""
    storage_of = trace.tensors.storage_of
    used = {
        storage_of[tensor]
        for index in range(call.first_op, call.end_op)
        for tensor in (*trace.ops.inputs[index], *trace.ops.outputs[index])
    }
    if call.parent < 0:
        used.update(storage for storage, first in enumerate(lifetimes.first) if first < 0)
    arguments = {storage_of[tensor] for tensor in call.inputs if call.parent >= 0}  # also a buffer of another module
    given_back = {storage_of[tensor] for tensor in call.outputs}
    spans = {}
    for storage in used:
        first, last = lifetimes.first[storage], lifetimes.last[storage]
        unseen = last < call.first_op or first >= call.end_op
        counted = lifetimes.counted[storage] or storage in arguments
        if unseen or not counted or not lifetimes.sizes[storage]:
            continue
        # What an outer op made stays live to the end of the call, and so does what the call returns: the caller refers
        # to both. Inputs of the model (first < 0) and everything made inside end with their last use.
        is_given = first < call.first_op
        leaves_early = last < call.end_op and (first < 0 or not is_given) and storage not in given_back
        spans[storage] = (max(first, call.first_op), last if leaves_early else call.end_op - 1)
    return spans


def _sizes(
    trace: Trace, lifetimes: StorageLifetimes, call: ModuleCall, spans: Mapping[int, tuple[int, int]]
) -> dict[int, int]:
    """The bytes of each storage; of the inputs of an inner call, only the part that its tensors cover."""
    sizes = {storage: lifetimes.sizes[storage] for storage in spans}
    if call.parent < 0:
        return sizes
    looked_at: dict[int, int] = {}
    for index in range(call.first_op, call.end_op):
        for tensor in trace.ops.inputs[index]:
            storage = trace.tensors.storage_of[tensor]
            if storage in sizes and lifetimes.first[storage] < call.first_op:
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
    """The place where each storage was made, or where an input is used first."""
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
    """The storages that become live and die with each op of the call."""
    begins: list[list[int]] = [[] for _ in range(call.first_op, call.end_op)]
    ends: list[list[int]] = [[] for _ in begins]
    for storage, (first, last) in spans.items():
        begins[first - call.first_op].append(storage)
        ends[last - call.first_op].append(storage)
    return begins, ends


def _by_origin(live: Iterable[int], sizes: Mapping[int, int], origins: Mapping[int, Place]) -> dict[Place, int]:
    parts: dict[Place, int] = {}
    for storage in live:
        place = origins[storage]
        parts[place] = parts.get(place, 0) + sizes[storage]
    return parts


# --- Observations: what each module call cost, with the parameters it was called with ---


class Cost(Record, frozen=True, kw_only=True):
    """FLOPs, bytes read and bytes written."""

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
    lifetimes: StorageLifetimes | None = None  # None: activation memory is not observed
    known: dict[str, int] = {}  # parameters of the configuration, by name
    root: dict[str, int] = {}  # the parameters of the root call, where they are given and not read from its tensors
    held_out: bool = False  # used to check only
    guard: str = ""  # the condition that a formula gets which does not hold here; "": it must hold


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedOp:
    """One op call that ran in a module itself."""

    signature: OpSignature
    cost: Cost
    numbers: tuple[int, ...]  # the sizes and whole-number arguments of the call, in order
    has_list: bool = False  # it takes a list of equal tensors, of which only the first and the length are in `numbers`


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """One call of a module inside another."""

    class_name: str
    path: str
    parameters: CallParameters
    seen: "Observation | None" = None  # the call itself: where its class has no formula, its ops count as the caller's


@dataclass(slots=True, kw_only=True)
class Observation:
    """One module call."""

    class_name: str
    path: str
    parameters: CallParameters
    held_out: bool
    guard: str = ""
    point: dict[str, int] = field(default_factory=dict)  # the coordinates that formulas are fitted in
    own: Cost = NO_COST
    whole: Cost = NO_COST  # with everything inside
    ops: list[PricedOp] = field(default_factory=list)
    op_counts: list[int] = field(default_factory=list)  # how often each op ran; empty: once
    children: list[Child] = field(default_factory=list)
    unpriced: set[str] = field(default_factory=set)  # ops without a price, also inside
    own_tensors: tuple[TensorSpec, ...] = ()  # its own parameters and buffers
    weight_bytes: int = 0  # parameters and buffers of the module and everything inside, each storage once
    attributes: Mapping[str, Value] = field(default_factory=dict)  # of the module: scalars that configure it
    strided: bool = False  # an argument is not contiguous in memory, which may cost a copy
    reordered: bool = False  # one is so without being expanded: how often rows repeat may be a parameter
    find_moments: Callable[[], dict[Place, Moment]] | None = None  # computed on first use: not every call needs it
    _moments: dict[Place, Moment] | None = None

    @property
    def moments(self) -> dict[Place, Moment]:
        """The moment with the most live memory at every place; empty where memory was not observed, or no op ran."""
        if self._moments is None:
            self._moments = {} if self.find_moments is None else self.find_moments()
        return self._moments

    @property
    def peak_bytes(self) -> int | None:
        """The peak activation bytes; None where memory was not observed."""
        return max((moment.total_bytes for moment in self.moments.values()), default=None)


def observe(sample: Sample) -> list[Observation]:
    """Every module call of a sample, in the order they began."""
    trace = sample.trace
    tensors = _own_tensors(trace)
    seen = [
        Observation(
            class_name=trace.modules[call.module].class_name,
            path=trace.modules[call.module].path,
            parameters=bind_parameters(trace, call, sample.known, sample.root if call.parent < 0 else {}),
            held_out=sample.held_out,
            guard=sample.guard,
            own_tensors=tensors[call.module][0],
            weight_bytes=tensors[call.module][1],
            attributes=dict(trace.modules[call.module].attributes),
            strided=any(not spec.is_contiguous for spec in _tensors_given(call)),
            reordered=any(not spec.is_contiguous and 0 not in (spec.stride or ()) for spec in _tensors_given(call)),
            find_moments=None
            if sample.lifetimes is None
            else partial(peak_per_place, trace, sample.lifetimes, call.index),
        )
        for call in trace.module_calls
    ]
    ops: dict[tuple[int, tuple[int, ...]], PricedOp] = {}  # equal calls are read once
    for index, signature in enumerate(trace.ops.signature_of):
        row = trace.ops.module_calls[index]
        if row >= 0:
            key = (signature, seen[row].parameters.flat)
            if key not in ops:
                ops[key] = _priced_op(trace.ops.signatures[signature], sample.table.signatures[signature], key[1])
            _add_op(seen[row], ops[key], sample.table.signatures[signature])
    _roll_up(seen, trace.module_calls.parents)
    return seen


def _tensors_given(call: ModuleCall) -> Iterator[TensorSpec]:
    return (spec for argument in call.signature.arguments for spec in tensors_in(argument.value))


def _roll_up(seen: list[Observation], parents: Sequence[int]) -> None:
    """Calls stand in the order they began, so that inner ones come later."""
    for row in range(len(seen) - 1, -1, -1):
        seen[row].whole += seen[row].own
        if parents[row] >= 0:
            parent = seen[parents[row]]
            parent.whole += seen[row].whole
            parent.unpriced |= seen[row].unpriced
            one = seen[row]
            child = Child(class_name=one.class_name, path=one.path, parameters=one.parameters, seen=one)
            parent.children.append(child)
    for one in seen:
        one.children.reverse()


def _own_tensors(trace: Trace) -> list[tuple[tuple[TensorSpec, ...], int]]:
    """For each module: its own tensors and those of parts that are never called; and the bytes of all inside it."""
    own = [[trace.tensors[one.tensor] for one in (*module.parameters, *module.buffers)] for module in trace.modules]
    called = set(trace.module_calls.modules)
    storages: list[dict[int, int]] = [{one.storage: one.spec.size_bytes or 0 for one in many} for many in own]
    for index in range(len(trace.modules) - 1, 0, -1):  # modules stand in pre-order
        parent = trace.modules[index].parent
        storages[parent].update(storages[index])
        if index not in called:  # it has no observation of its own
            own[parent].extend(own[index])
    return [(tuple(one.spec for one in many), sum(sizes.values())) for many, sizes in zip(own, storages, strict=True)]


def _priced_op(signature: OpSignature, priced: SignatureCost, flat: tuple[int, ...]) -> PricedOp:
    cost = Cost(flops=priced.flops, reads=priced.bytes_read, writes=priced.bytes_written)
    called = flattened(signature, flat)
    short = _with_short_lists(called)
    numbers = tuple(numbers_in(short))
    return PricedOp(signature=called, cost=cost, numbers=numbers, has_list=len(numbers) < len(numbers_in(called)))


def _with_short_lists(signature: OpSignature) -> OpSignature:
    """The call with each long list of equal tensors as one and their number: a loop gives lists of any length."""
    arguments = tuple(
        Argument(name=one.name, value=_short_list(one.value), position=one.position) for one in signature.arguments
    )
    return OpSignature(op=signature.op, arguments=arguments, output=signature.output)


def _short_list(value: Value) -> Value:
    if not isinstance(value, Items) or len(value.items) < _LONG_LIST:
        return value
    tensors = [one for one in value.items if isinstance(one, TensorSpec)]
    if len(tensors) < len(value.items) or len({one.shape for one in tensors}) > 1:
        return value
    return Items(kind=value.kind, items=(tensors[0], len(tensors)))


def _add_op(seen: Observation, op: PricedOp, priced: SignatureCost) -> None:
    if priced.reason:
        seen.unpriced.add(op.signature.op)
    if op.cost != NO_COST:
        seen.own += op.cost
        seen.ops.append(op)


def inlined(seen: Observation, known: Collection[str]) -> Observation:
    """The call with the ops and inner calls of every inner class that has no formula counted as its own."""
    if all(child.class_name in known for child in seen.children):
        return seen
    ops, children, tensors = list(seen.ops), [], list(seen.own_tensors)
    for child in seen.children:
        if child.class_name in known or child.seen is None:
            children.append(child)
            continue
        inside = inlined(child.seen, known)
        ops.extend(inside.ops)
        children.extend(inside.children)
        tensors.extend(inside.own_tensors)
    return replace(seen, ops=ops, children=children, own_tensors=tuple(tensors))


def merged(seen: Observation) -> Observation:
    """The call with equal ops as one that runs several times: a loop over a size then lines up at every size.

    Other arguments than tensors, such as the shift of a roll, do not matter where the costs are equal.
    """
    counts: dict[Hashable, int] = {}
    kept: list[PricedOp] = []
    for op in seen.ops:
        cost = (op.cost.flops, op.cost.reads, op.cost.writes)
        key = (op.signature.op, len(op.numbers), _shapes(op.signature), cost)
        if key not in counts:
            kept.append(op)
        counts[key] = counts.get(key, 0) + 1
    return replace(seen, ops=[_with_runs(op) for op in kept], op_counts=list(counts.values()))


def _with_runs(op: PricedOp) -> PricedOp:
    """An op that takes a list of tensors, with each run of equal ones as one tensor and their number."""
    lists = [one for one in op.signature.arguments if isinstance(one.value, Items) and any(tensors_in(one.value))]
    if not lists:
        return op
    arguments = tuple(
        Argument(name=one.name, value=_runs(one.value) if one in lists else one.value, position=one.position)
        for one in op.signature.arguments
    )
    short = OpSignature(op=op.signature.op, arguments=arguments, output=op.signature.output)
    return replace(op, numbers=tuple(numbers_in(short)), has_list=True)


def _runs(value: Value) -> Value:
    if not isinstance(value, Items) or not all(isinstance(one, TensorSpec) for one in value.items):
        return value
    items: list[Value] = []
    for _, run in groupby(value.items, key=lambda one: one.shape if isinstance(one, TensorSpec) else ()):
        equal = list(run)
        items += [equal[0], len(equal)]
    return Items(kind=value.kind, items=tuple(items))


def _shapes(signature: OpSignature) -> tuple[tuple[int, ...], ...]:
    values = (*(one.value for one in signature.arguments), signature.output)
    return tuple(spec.shape for value in values for spec in tensors_in(value))


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

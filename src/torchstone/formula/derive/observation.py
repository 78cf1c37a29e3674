"""Trace + CostTable -> what each module call cost, with the parameters it was called with."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from torchstone.formula.derive.op_values import flattened
from torchstone.formula.derive.pieces import Moment, Pieces, Place, fullest_moments
from torchstone.formula.derive.reading import Reading, read_call
from torchstone.record.base import Record
from torchstone.record.cost import CostTable, SignatureCost
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace


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

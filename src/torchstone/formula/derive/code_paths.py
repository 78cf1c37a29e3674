"""Ways through the code of a class: conditions that choose one, and the ops and inner calls of each."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from torchstone.formula.algebra.polynomial import ZERO, Polynomial
from torchstone.formula.derive.fit import Forms
from torchstone.formula.derive.observe import Cost, Observation
from torchstone.formula.derive.op_forms import RefusedError
from torchstone.formula.derive.parameter_binding import DTYPE_BYTES

# What a derivation finds: ways through the code of a class, each with its own ops and its inner calls.


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerCall:
    """Calls of another class inside a class."""

    class_name: str
    count: Polynomial  # how many calls, in parameters
    bindings: Mapping[str, Polynomial]  # parameter of the inner class -> its value in parameters of the outer one


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What ops of one kind that run in the class itself cost."""

    op: str
    forms: Forms


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What one way through the code costs."""

    parts: tuple[Part, ...]
    inner: tuple[InnerCall, ...]
    weights: Polynomial | None  # bytes of parameters and buffers that the class holds beside those of its inner calls
    held: tuple[Polynomial, ...] | None = None  # sums; the most bytes of activations at one time are the largest

    def own(self, quantity: int) -> Polynomial:
        """The cost of the ops that run in the class itself: FLOPs, bytes read or bytes written."""
        return sum((part.forms[quantity] for part in self.parts), start=ZERO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Two bodies, and the condition that decides between them: a polynomial that is equal to a number."""

    subject: Polynomial
    equals: int
    yes: "Body | Ways"
    no: "Body | Ways"


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """The formula of one class, with what it was checked against."""

    class_name: str
    body: Body | Ways
    parameters: tuple[str, ...]  # that the formula depends on
    switches: tuple[str, ...]  # those of them that are 0 or 1
    domain: tuple[str, ...]
    points: int  # different settings that gave exactly the measured numbers
    held_out: int  # those of them that were not fitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A class without a formula, and why."""

    class_name: str
    reason: str


def evaluate(derived: Derived, values: Mapping[str, int], known: Mapping[str, Derived]) -> Cost:
    """The cost of one call by its formula."""
    body = _taken(derived.body, values)
    own = [body.own(quantity).value(values) for quantity in range(3)]
    total = Cost(flops=_whole(own[0]), reads=_whole(own[1]), writes=_whole(own[2]))
    for call in body.inner:
        count = _whole(call.count.value(values))
        inner = {name: _whole(form.value(values)) for name, form in call.bindings.items()}
        cost = evaluate(known[call.class_name], inner, known)
        total += Cost(flops=count * cost.flops, reads=count * cost.reads, writes=count * cost.writes)
    return total


def weights_of(derived: Derived, values: Mapping[str, int], known: Mapping[str, Derived]) -> int | None:
    """The bytes of parameters and buffers by the formula; None where it is not known."""
    body = _taken(derived.body, values)
    if body.weights is None:
        return None
    total = _whole(body.weights.value(values))
    for call in body.inner:
        inner = {name: _whole(form.value(values)) for name, form in call.bindings.items()}
        held = weights_of(known[call.class_name], inner, known)
        if held is None:
            return None
        total += _whole(call.count.value(values)) * held
    return total


def held_of(derived: Derived, values: Mapping[str, int]) -> int | None:
    """The most bytes of activations held at one time by the formula; None where it is not known."""
    sums = _taken(derived.body, values).held
    return None if sums is None else _whole(max(one.value(values) for one in sums))


def _taken(body: Body | Ways, values: Mapping[str, int]) -> Body:
    while isinstance(body, Ways):
        body = body.yes if body.subject.value(values) == body.equals else body.no
    return body


def without_weights(body: Body | Ways) -> Body | Ways:
    """The same body whose weights are not known."""
    if isinstance(body, Ways):
        return replace(body, yes=without_weights(body.yes), no=without_weights(body.no))
    return replace(body, weights=None)


def without_held(body: Body | Ways) -> Body | Ways:
    """The same body of which nobody knows what it holds."""
    if isinstance(body, Ways):
        return replace(body, yes=without_held(body.yes), no=without_held(body.no))
    return replace(body, held=None)


def _whole(value: object) -> int:
    number = int(value)  # type: ignore[call-overload]
    if number != value:
        msg = f"a formula gives {value}, which is not a whole number"
        raise RefusedError(msg)
    return int(number)


def unknowns_of(body: Body | Ways) -> frozenset[str]:
    """The parameters that a body depends on."""
    if isinstance(body, Ways):
        return body.subject.unknowns | unknowns_of(body.yes) | unknowns_of(body.no)
    names = set() if body.weights is None else set(body.weights.unknowns)
    names.update(*(one.unknowns for one in body.held or ()))
    for part in body.parts:
        names.update(*(form.unknowns for form in part.forms))
    for call in body.inner:
        names.update(call.count.unknowns, *(form.unknowns for form in call.bindings.values()))
    return frozenset(names)


def bodies_of(body: Body | Ways) -> list[Body]:
    """All ways through the code."""
    return [body] if isinstance(body, Body) else [*bodies_of(body.yes), *bodies_of(body.no)]


# Observations of one class -> a tree of conditions that tells which way its code goes.


@dataclass(frozen=True, slots=True)
class Condition:
    """A question about a call: whether a coordinate, fact or element size is equal to a number."""

    name: str
    equals: int

    def holds(self, seen: Observation) -> bool:
        """The answer for one call."""
        found = seen.point.get(self.name)
        return (seen.reading.value(self.name) if found is None else found) == self.equals


@dataclass(frozen=True, slots=True)
class Leaf:
    """Calls that all went the same way."""

    observations: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class Fork:
    """Calls that went different ways, told apart by a condition."""

    condition: Condition
    yes: "Leaf | Fork"
    no: "Leaf | Fork"


Way = Callable[[Observation], Hashable]


def tell_apart(observations: Sequence[Observation], way: Way) -> Leaf | Fork:
    """Split calls until all calls of a leaf went the same way; refuse where no parameter tells why they differ."""
    ways = {way(seen) for seen in observations}
    if len(ways) == 1:
        return Leaf(tuple(observations))
    best: tuple[int, int, Condition] | None = None
    for order, condition in enumerate(_conditions(observations)):
        sides = [condition.holds(seen) for seen in observations]
        if len(set(sides)) == 1:
            continue
        mixed = len({(side, way(seen)) for side, seen in zip(sides, observations, strict=True)})
        if best is None or (mixed, order) < best[:2]:
            best = (mixed, order, condition)
    if best is None:
        seen = observations[0]
        msg = f"{seen.class_name} runs different ops at equal parameters ({_difference(observations, way)})"
        raise RefusedError(msg)
    condition = best[2]
    yes = [seen for seen in observations if condition.holds(seen)]
    no = [seen for seen in observations if not condition.holds(seen)]
    return Fork(condition, tell_apart(yes, way), tell_apart(no, way))


def _conditions(observations: Sequence[Observation]) -> list[Condition]:
    """What could tell calls apart, the plainest first: a size of 1, the element type, a switch of the module."""
    sizes = dict.fromkeys(name for seen in observations for name in seen.point)
    facts = dict.fromkeys(name for seen in observations for name in seen.reading.facts)
    switches = [name for name in facts if not name.startswith("has_")]
    arguments = [name for name in facts if name.startswith("has_")]
    return [
        *(Condition(name, 1) for name in sizes),
        Condition(DTYPE_BYTES, 4),
        *(Condition(name, 1) for name in (*switches, *arguments)),
    ]


def _difference(observations: Sequence[Observation], way: Way) -> str:
    counts = Counter(way(seen) for seen in observations)
    first, second = list(counts)[:2]
    paths = [next(seen.path for seen in observations if way(seen) == one) for one in (first, second)]
    return f"{paths[0] or 'the root'} and {paths[1] or 'the root'}"


def leaves(tree: Leaf | Fork) -> list[Leaf]:
    """The leaves from left to right."""
    return [tree] if isinstance(tree, Leaf) else [*leaves(tree.yes), *leaves(tree.no)]

"""Code paths through a class: the conditions that choose one, and the ops and inner calls of each.

The same class runs different ops at different sizes: torch takes another kernel for a batch of 1, a layer has an
optional bias. A formula must say so, as `a if condition else b`. This module splits observed calls until every group
ran the same ops, and describes the result as a tree: `Branch` at the forks, `Body` at the leaves.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from torchstone.formula.algebra.polynomial import ZERO, Polynomial
from torchstone.formula.derive.fit import Forms
from torchstone.formula.derive.observe import Cost, Observation
from torchstone.formula.derive.op_forms import RefusedError
from torchstone.formula.derive.parameter_binding import DTYPE_BYTES

# --- The result of a derivation: a tree of conditions with a body at each leaf ---


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerCall:
    """Calls of another class inside a class."""

    class_name: str
    count: Polynomial  # how many calls, in parameters
    bindings: Mapping[str, Polynomial]  # parameter of the inner class -> its value in parameters of the outer one
    name: str = ""  # of the attribute that holds the inner module; layers of one list share theirs


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The cost of all ops of one kind that run in the class itself, not in its inner modules."""

    op: str
    forms: Forms


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The cost of one code path."""

    parts: tuple[Part, ...]
    inner: tuple[InnerCall, ...]
    weights: Polynomial | None  # bytes of parameters and buffers beside those of its inner calls; None: unknown
    activations: tuple[Polynomial, ...] | None = None  # peak activation bytes are the largest of these; None: unknown

    def own(self, quantity: int) -> Polynomial:
        """The cost of the ops that run in the class itself: FLOPs, bytes read or bytes written."""
        return sum((part.forms[quantity] for part in self.parts), start=ZERO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A condition, that a polynomial is equal to a number, and what runs where it holds and where it does not."""

    subject: Polynomial
    equals: int
    yes: "Body | Branch"
    no: "Body | Branch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """The formula of one class, with what it was checked against."""

    class_name: str
    body: Body | Branch
    parameters: tuple[str, ...]  # that the formula depends on
    switches: tuple[str, ...]  # those of them that are 0 or 1
    domain: tuple[str, ...]
    points: int  # different settings that gave exactly the measured numbers
    held_out: int  # those of them that were not used for fitting


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A class without a formula, and why."""

    class_name: str
    reason: str


def evaluate(derived: Derived, values: Mapping[str, int], known: Mapping[str, Derived]) -> Cost:
    """The cost of one call by its formula."""
    body = _chosen_body(derived.body, values)
    own = [body.own(quantity).value(values) for quantity in range(3)]
    total = Cost(flops=_whole(own[0]), reads=_whole(own[1]), writes=_whole(own[2]))
    for call in body.inner:
        count = _whole(call.count.value(values))
        inner = {name: _whole(form.value(values)) for name, form in call.bindings.items()}
        cost = evaluate(known[call.class_name], inner, known)
        total += Cost(flops=count * cost.flops, reads=count * cost.reads, writes=count * cost.writes)
    return total


def weights_of(derived: Derived, values: Mapping[str, int], known: Mapping[str, Derived]) -> int | None:
    """The bytes of parameters and buffers by the formula; None where it has none."""
    body = _chosen_body(derived.body, values)
    if body.weights is None:
        return None
    total = _whole(body.weights.value(values))
    for call in body.inner:
        inner = {name: _whole(form.value(values)) for name, form in call.bindings.items()}
        inside = weights_of(known[call.class_name], inner, known)
        if inside is None:
            return None
        total += _whole(call.count.value(values)) * inside
    return total


def peak_activation_of(derived: Derived, values: Mapping[str, int]) -> int | None:
    """The peak activation bytes by the formula; None where it has none."""
    sums = _chosen_body(derived.body, values).activations
    return None if sums is None else _whole(max(one.value(values) for one in sums))


def _chosen_body(body: Body | Branch, values: Mapping[str, int]) -> Body:
    while isinstance(body, Branch):
        body = body.yes if body.subject.value(values) == body.equals else body.no
    return body


def without_weights(body: Body | Branch) -> Body | Branch:
    """The same tree without a formula for the weights."""
    if isinstance(body, Branch):
        return replace(body, yes=without_weights(body.yes), no=without_weights(body.no))
    return replace(body, weights=None)


def without_peak(body: Body | Branch) -> Body | Branch:
    """The same tree without a formula for the peak activation bytes."""
    if isinstance(body, Branch):
        return replace(body, yes=without_peak(body.yes), no=without_peak(body.no))
    return replace(body, activations=None)


def _whole(value: object) -> int:
    number = int(value)  # type: ignore[call-overload]
    if number != value:
        msg = f"a formula gives {value}, which is not a whole number"
        raise RefusedError(msg)
    return int(number)


def unknowns_of(body: Body | Branch) -> frozenset[str]:
    """The parameters that a body depends on."""
    if isinstance(body, Branch):
        return body.subject.unknowns | unknowns_of(body.yes) | unknowns_of(body.no)
    names = set() if body.weights is None else set(body.weights.unknowns)
    names.update(*(one.unknowns for one in body.activations or ()))
    for part in body.parts:
        names.update(*(form.unknowns for form in part.forms))
    for call in body.inner:
        names.update(call.count.unknowns, *(form.unknowns for form in call.bindings.values()))
    return frozenset(names)


def bodies_of(body: Body | Branch) -> list[Body]:
    """The bodies of all code paths, from left to right."""
    return [body] if isinstance(body, Body) else [*bodies_of(body.yes), *bodies_of(body.no)]


# --- Splitting observed calls by code path ---
#
# As in a decision tree: of all candidate conditions, take the one that separates the paths best, then go on with both
# sides. Candidates are few and fixed (a size of 1, the element type, a boolean), so a condition always has a meaning
# that can be printed; a threshold fitted to the samples would be a guess about sizes that were never run.


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether a coordinate, switch or element size of a call is equal to a number."""

    name: str
    equals: int

    def holds(self, seen: Observation) -> bool:
        """Whether the condition holds for one call."""
        found = seen.point.get(self.name)
        return (seen.parameters.value(self.name) if found is None else found) == self.equals


@dataclass(frozen=True, slots=True)
class Leaf:
    """Calls that all took the same code path."""

    observations: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class Fork:
    """Calls on different code paths, separated by a condition."""

    condition: Condition
    yes: "Leaf | Fork"
    no: "Leaf | Fork"


PathKey = Callable[[Observation], Hashable]  # equal for calls on the same code path


def split_by_path(observations: Sequence[Observation], key: PathKey) -> Leaf | Fork:
    """Split calls until each leaf has one code path; raises RefusedError where no condition separates two."""
    if len({key(seen) for seen in observations}) == 1:
        return Leaf(tuple(observations))
    best: tuple[int, int, Condition] | None = None
    for order, condition in enumerate(_conditions(observations)):
        sides = [condition.holds(seen) for seen in observations]
        if len(set(sides)) == 1:
            continue
        # Paths that are left on both sides count twice: the fewest pairs mean the cleanest split. Ties go to the
        # plainer condition, which comes first.
        mixed = len({(side, key(seen)) for side, seen in zip(sides, observations, strict=True)})
        if best is None or (mixed, order) < best[:2]:
            best = (mixed, order, condition)
    if best is None:
        seen = observations[0]
        msg = f"{seen.class_name} runs different ops at equal parameters ({_difference(observations, key)})"
        raise RefusedError(msg)
    condition = best[2]
    yes = [seen for seen in observations if condition.holds(seen)]
    no = [seen for seen in observations if not condition.holds(seen)]
    return Fork(condition, split_by_path(yes, key), split_by_path(no, key))


def _conditions(observations: Sequence[Observation]) -> list[Condition]:
    """Candidate conditions, the plainest first: a size of 1, the element type, a switch, an argument that is given."""
    sizes = dict.fromkeys(name for seen in observations for name in seen.point)
    facts = dict.fromkeys(name for seen in observations for name in seen.parameters.facts)
    switches = [name for name in facts if not name.startswith("has_")]
    arguments = [name for name in facts if name.startswith("has_")]
    return [
        *(Condition(name, 1) for name in sizes),
        Condition(DTYPE_BYTES, 4),
        *(Condition(name, 1) for name in (*switches, *arguments)),
    ]


def _difference(observations: Sequence[Observation], key: PathKey) -> str:
    counts = Counter(key(seen) for seen in observations)
    first, second = list(counts)[:2]
    paths = [next(seen.path for seen in observations if key(seen) == one) for one in (first, second)]
    return f"{paths[0] or 'the root'} and {paths[1] or 'the root'}"


def leaves(tree: Leaf | Fork) -> list[Leaf]:
    """The leaves from left to right."""
    return [tree] if isinstance(tree, Leaf) else [*leaves(tree.yes), *leaves(tree.no)]

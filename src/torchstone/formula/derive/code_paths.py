"""Observations of one class -> a tree of conditions that tells which way its code goes."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from torchstone.formula.derive.observation import Observation
from torchstone.formula.derive.op_forms import RefusedError
from torchstone.formula.derive.reading import DTYPE_BYTES


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

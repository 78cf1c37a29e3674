"""A failing vector -> a smaller one that still fails in the same way."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from torchstone.record.tensor import TensorSpec
from torchstone.record.value import tensors_in
from torchstone.record.vector import Vector
from torchstone.sweep.neighbours import resized

MOST_ROUNDS = 40

StillFails = Callable[[list[Vector]], Vector | None]  # the first of them that fails as the original does


def shrink(vector: Vector, still_fails: StillFails) -> Vector:
    """Make one size after another smaller, as long as it fails."""
    current = vector
    for _ in range(MOST_ROUNDS):
        smaller = still_fails(list(_smaller(current)))
        if smaller is None:
            return current
        current = smaller
    return current


def _smaller(vector: Vector) -> Iterator[Vector]:
    """Candidates, the smallest first: each size of its tensors to 1, 2, and halfway down."""
    if vector.configuration is None:
        return
    specs = [spec for argument in vector.configuration.arguments for spec in tensors_in(argument.value)]
    known = {vector.id}
    for size in _sizes(specs):
        for new in sorted({1, 2, size // 2}):
            if new >= size:
                continue
            configuration, facts = resized(vector.configuration, vector.facts, size, new)
            if configuration.key not in known:
                known.add(configuration.key)
                yield replace(vector, id=configuration.key, configuration=configuration, facts=facts)


def _sizes(specs: list[TensorSpec]) -> list[int]:
    return sorted({size for spec in specs for size in spec.shape if size > 1}, reverse=True)

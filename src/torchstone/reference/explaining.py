"""Why a tensor may be wrong: another order of dimensions, another shape, padding, a wrong scale or offset."""

from collections.abc import Callable, Iterator
from itertools import permutations

from torch import Tensor

Passes = Callable[[Tensor, Tensor], bool]  # whether a candidate would pass for a golden tensor

_MOST_ELEMENTS = 1 << 24  # each try costs a comparison of the whole tensor
_MOST_DIMENSIONS = 5


def explain(golden: Tensor, candidate: Tensor, passes: Passes) -> str:
    """What would make a wrong candidate right, in words; "" when nothing that is known does."""
    if not 0 < candidate.numel() <= _MOST_ELEMENTS or candidate.is_complex():
        return ""
    tries = _reorderings(golden, candidate) if golden.shape == candidate.shape else _other_shapes(golden, candidate)
    return next((words for words, changed in tries if passes(golden, changed)), "")


def _other_shapes(golden: Tensor, candidate: Tensor) -> Iterator[tuple[str, Tensor]]:
    if candidate.numel() == golden.numel() and _without_ones(golden) == _without_ones(candidate):
        yield f"right after reshape{tuple(golden.shape)}", candidate.reshape(golden.shape)
    yield from _reorderings(golden, candidate)
    if candidate.numel() == golden.numel():
        yield f"right after reshape{tuple(golden.shape)}", candidate.reshape(golden.shape)
    sizes = tuple(golden.shape)
    if candidate.dim() == golden.dim() and all(map(int.__ge__, candidate.shape, sizes)):
        yield f"right in its first {list(sizes)}: the rest is padding", candidate[tuple(map(slice, sizes))]


def _without_ones(tensor: Tensor) -> list[int]:
    return [size for size in tensor.shape if size > 1]


def _reorderings(golden: Tensor, candidate: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Every other order of the dimensions that gives the golden shape."""
    if sorted(golden.shape) != sorted(candidate.shape) or candidate.dim() > _MOST_DIMENSIONS:
        return
    for order in permutations(range(candidate.dim())):
        moved = candidate.permute(order)
        if moved.shape == golden.shape and list(order) != sorted(order):
            yield f"right after permute{order}", moved


def explain_scale(golden: Tensor, candidate: Tensor, passes: Passes) -> str:
    """Which factor or offset lies between two tensors of one shape whose PCC is good."""
    left, right = golden.double(), candidate.double()
    factor = float((left * right).sum() / (left * left).sum())
    if factor and passes(golden, (right / factor).to(candidate.dtype)):
        return f"it is about {factor:.4g} times the golden tensor"
    offset = float((right - left).mean())
    if passes(golden, (right - offset).to(candidate.dtype)):
        return f"it is about the golden tensor plus {offset:.4g}"
    return ""

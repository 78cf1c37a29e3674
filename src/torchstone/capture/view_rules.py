"""Shapes, strides and offsets of views, as torch computes them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch._ops import OpOverload

View = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, strides and offset

_aten = torch.ops.aten
_MATRIX = 2


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size or 1
    return tuple(reversed(strides))


def _view(given: Tensor, shape: Sequence[int]) -> list[View] | None:
    """Another shape of a contiguous tensor; how others can be viewed is left to torch."""
    count = given.numel()
    if not count or given.stride() != row_major(given.shape):
        return None
    known = 1
    for size in shape:
        known *= 1 if size == -1 else size
    if known <= 0 or count % known:
        return None
    sizes = tuple([count // known if size == -1 else size for size in shape])
    if known != count and -1 not in shape:
        return None
    return [(sizes, row_major(sizes), int(given.storage_offset()))]


def _ordered(given: Tensor, order: Sequence[int]) -> list[View]:
    shape, strides = given.shape, given.stride()
    return [(tuple([shape[dim] for dim in order]), tuple([strides[dim] for dim in order]), int(given.storage_offset()))]


def _permute(given: Tensor, dims: Sequence[int]) -> list[View] | None:
    count = given.dim()
    order = [dim + count if dim < 0 else dim for dim in dims]
    return _ordered(given, order) if sorted(order) == list(range(count)) else None


def _transpose(given: Tensor, first: int, second: int) -> list[View] | None:
    count = given.dim()
    if not (-count <= first < count and -count <= second < count):
        return None
    order = list(range(count))
    order[first], order[second] = order[second], order[first]
    return _ordered(given, order)


def _transpose_matrix(given: Tensor) -> list[View] | None:
    return _ordered(given, (1, 0)) if given.dim() == _MATRIX else None


def _expand(given: Tensor, sizes: Sequence[int]) -> list[View] | None:
    shape, strides = list(given.shape), list(given.stride())
    new = len(sizes) - len(shape)
    if new < 0 or not shape:
        return None
    for _ in range(new):  # a new dimension is one of size 1 before it is expanded
        strides.insert(0, shape[0] * strides[0])
        shape.insert(0, 1)
    for dim, size in enumerate(sizes):
        if size not in (-1, shape[dim]):
            if shape[dim] != 1 or size < 0:
                return None
            shape[dim], strides[dim] = size, 0
    return [(tuple(shape), tuple(strides), int(given.storage_offset()))] if -1 not in sizes[:new] else None


def _unsqueeze(given: Tensor, dim: int) -> list[View] | None:
    shape, strides = list(given.shape), list(given.stride())
    place = dim + len(shape) + 1 if dim < 0 else dim
    if not 0 <= place <= len(shape):
        return None
    step = shape[place] * strides[place] if place < len(shape) else 1
    shape.insert(place, 1)
    strides.insert(place, step)
    return [(tuple(shape), tuple(strides), int(given.storage_offset()))]


def _slice(
    given: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> list[View] | None:
    if not -given.dim() <= dim < given.dim() or step < 1:
        return None
    shape, strides = list(given.shape), list(given.stride())
    first, last, _ = slice(start, end).indices(shape[dim])
    shape[dim] = (max(last - first, 0) + step - 1) // step
    offset = int(given.storage_offset()) + first * strides[dim]
    strides[dim] *= step
    return [(tuple(shape), tuple(strides), offset)]


def _select(given: Tensor, dim: int, index: int) -> list[View] | None:
    if not -given.dim() <= dim < given.dim() or not -given.shape[dim] <= index < given.shape[dim]:
        return None
    shape, strides = list(given.shape), list(given.stride())
    size, step = shape.pop(dim), strides.pop(dim)
    return [(tuple(shape), tuple(strides), int(given.storage_offset()) + index % size * step)]


def _unbind(given: Tensor, dim: int = 0) -> list[View] | None:
    if not -given.dim() <= dim < given.dim():
        return None
    return [view for index in range(given.shape[dim]) for view in _select(given, dim, index) or ()]


def _split(given: Tensor, size: int, dim: int = 0) -> list[View] | None:
    if not -given.dim() <= dim < given.dim() or size < 1 or not given.shape[dim]:
        return None
    starts = range(0, given.shape[dim], size)
    return [view for start in starts for view in _slice(given, dim, start, start + size) or ()]


def _split_with_sizes(given: Tensor, sizes: Sequence[int], dim: int = 0) -> list[View] | None:
    if not -given.dim() <= dim < given.dim() or sum(sizes) != given.shape[dim] or min(sizes, default=-1) < 0:
        return None
    views: list[View] = []
    start = 0
    for size in sizes:
        views += _slice(given, dim, start, start + size) or ()
        start += size
    return views


VIEW_RULES: dict[OpOverload, Callable[..., list[View] | None]] = {
    _aten.view.default: _view,
    _aten._unsafe_view.default: _view,
    _aten.permute.default: _permute,
    _aten.transpose.int: _transpose,
    _aten.t.default: _transpose_matrix,
    _aten.expand.default: _expand,
    _aten.unsqueeze.default: _unsqueeze,
    _aten.slice.Tensor: _slice,
    _aten.select.int: _select,
    _aten.unbind.int: _unbind,
    _aten.split.Tensor: _split,
    _aten.split_with_sizes.default: _split_with_sizes,
}
LISTS: frozenset[object] = frozenset({_aten.unbind.int, _aten.split.Tensor, _aten.split_with_sizes.default})

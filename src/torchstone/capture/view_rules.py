"""Shapes, strides and offsets of views, and strides of pointwise results, as torch computes them."""

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
    """Another shape of a tensor that has elements; None where it cannot be viewed like that."""
    count = given.numel()
    if not count or min(shape, default=1) < -1 or shape.count(-1) > 1:
        return None
    known = 1
    for size in shape:
        known *= 1 if size == -1 else size
    if known <= 0 or count % known:
        return None
    sizes = tuple([count // known if size == -1 else size for size in shape])
    if known != count and -1 not in shape:
        return None
    if given.stride() == row_major(given.shape):
        return [(sizes, row_major(sizes), int(given.storage_offset()))]
    strides = _strides_of_view(given.shape, given.stride(), sizes)
    return None if strides is None else [(sizes, strides, int(given.storage_offset()))]


def _strides_of_view(shape: Sequence[int], strides: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...] | None:
    """Each stretch of dimensions that lie in memory as one is split on its own, the innermost first."""
    found = [1] * len(sizes)
    left = len(sizes)  # dimensions of the view that have no stride yet
    inner = len(shape)
    while inner > 0:
        step, count = strides[inner - 1], shape[inner - 1]
        outer = inner - 1
        while outer > 0 and (shape[outer - 1] == 1 or strides[outer - 1] == count * step):
            outer -= 1
            count *= shape[outer]
        covered = 1
        while left > 0 and (covered < count or sizes[left - 1] == 1):
            left -= 1
            found[left] = covered * step
            covered *= sizes[left]
        if covered != count:
            return None
        inner = outer
    return tuple(found) if left == 0 else None


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


def _squeeze(given: Tensor, *dims: int) -> list[View] | None:
    if not all(-given.dim() <= dim < given.dim() for dim in dims):
        return None
    asked = {dim % given.dim() for dim in dims} if dims else range(given.dim())
    kept = [place for place, size in enumerate(given.shape) if size != 1 or place not in asked]
    return [
        (
            tuple([given.shape[place] for place in kept]),
            tuple([given.stride()[place] for place in kept]),
            int(given.storage_offset()),
        )
    ]


def _squeeze_dims(given: Tensor, dims: Sequence[int]) -> list[View] | None:
    return _squeeze(given, *dims) if dims else None


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


def _unfold(given: Tensor, dim: int, size: int, step: int) -> list[View] | None:
    if not -given.dim() <= dim < given.dim() or not 0 <= size <= given.shape[dim] or step < 1:
        return None
    shape, strides = list(given.shape), list(given.stride())
    shape.append(size)
    strides.append(strides[dim])
    place = dim % given.dim()
    shape[place] = (shape[place] - size) // step + 1
    strides[place] *= step
    return [(tuple(shape), tuple(strides), int(given.storage_offset()))]


def _alias(given: Tensor) -> list[View]:
    return [(tuple(given.shape), tuple(given.stride()), int(given.storage_offset()))]


VIEW_RULES: dict[OpOverload, Callable[..., list[View] | None]] = {
    _aten.alias.default: _alias,
    _aten.view.default: _view,
    _aten._unsafe_view.default: _view,
    _aten.permute.default: _permute,
    _aten.transpose.int: _transpose,
    _aten.t.default: _transpose_matrix,
    _aten.expand.default: _expand,
    _aten.unsqueeze.default: _unsqueeze,
    _aten.squeeze.default: _squeeze,
    _aten.squeeze.dim: _squeeze,
    _aten.squeeze.dims: _squeeze_dims,
    _aten.slice.Tensor: _slice,
    _aten.select.int: _select,
    _aten.unbind.int: _unbind,
    _aten.unfold.default: _unfold,
    _aten.split.Tensor: _split,
    _aten.split_with_sizes.default: _split_with_sizes,
}
LISTS: frozenset[object] = frozenset({_aten.unbind.int, _aten.split.Tensor, _aten.split_with_sizes.default})


# Strides of what a pointwise kernel writes, as torch's TensorIterator chooses them. The result lies in memory in the
# order of its inputs: the first of them that distinguishes two dimensions decides their order. Inputs that all lie in
# one way, without gaps, are a case of their own, in which sizes of 1 keep their strides.


_IMAGE = 4  # dimensions of a batch of images


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of new images whose channels lie side by side."""
    outer, channels, height, width = shape
    batches, rows, columns, step = row_major((outer, height, width, channels))
    return batches, step, rows, columns


def suggests_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether kernels take images for channels last: torch's own rule, which looks at strides of single sizes, too."""
    channels = strides[1]
    if not channels:
        return False
    least = 0
    for dim in (1, 3, 2, 0):
        if shape[dim] == 0 or strides[dim] < least or (dim == 0 and least == channels):
            return False
        least = strides[dim] * shape[dim]
    return True


def fills_memory(tensor: Tensor) -> bool:
    """Whether a tensor with elements has neither gaps nor two elements in one place."""
    step = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return step > 0


def pointwise(tensors: Sequence[Tensor], *, with_number: bool) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shape and strides of a new result of tensors, with a number among the arguments or not; None where unclear."""
    shape = _broadcast([tuple(one.shape) for one in tensors])
    if shape is None or 0 in shape:
        return None
    first = tensors[0]
    if (not with_number or not shape) and all(one.shape == first.shape for one in tensors):
        if all(one.is_contiguous() for one in tensors):
            return shape, row_major(shape)
        if len(shape) == _IMAGE and all(one.is_contiguous(memory_format=torch.channels_last) for one in tensors):
            return shape, channels_last(shape)
        if all(one.stride() == first.stride() for one in tensors) and fills_memory(first):
            return shape, tuple(first.stride())
    return shape, _in_reading_order(shape, [_stretched(one, shape) for one in tensors])


def like(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of a new tensor that preserves the format of one with elements, as `empty_like` does."""
    shape = tuple(tensor.shape)
    return shape, tuple(tensor.stride()) if fills_memory(tensor) else _in_reading_order(shape, [tensor.stride()])


def _in_reading_order(shape: tuple[int, ...], strides: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Strides without gaps, the dimensions in the order in which tensors with some strides are read."""
    made, step = [0] * len(shape), 1
    for dim in _reading_order(shape, strides):
        made[dim] = step
        step *= shape[dim]
    return tuple(made)


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    shape: list[int] = []
    for one in shapes:
        shape = [1] * (len(one) - len(shape)) + shape
        for place, size in enumerate(one, len(shape) - len(one)):
            if size not in (1, shape[place]):
                if shape[place] != 1:
                    return None
                shape[place] = size
    return tuple(shape)


def _stretched(tensor: Tensor, shape: tuple[int, ...]) -> list[int]:
    """The strides with which a tensor is read; 0 where one element stands for many."""
    new = len(shape) - tensor.dim()
    pairs = zip(tensor.shape, tensor.stride(), shape[new:], strict=True)
    return [0] * new + [0 if size == 1 and full != 1 else stride for size, stride, full in pairs]


def _reading_order(shape: tuple[int, ...], strides: Sequence[Sequence[int]]) -> list[int]:
    """The dimensions, the one that lies closest together first: an insertion sort that leaves open what is unclear."""
    order = list(range(len(shape) - 1, -1, -1))
    for start in range(1, len(order)):
        place = start
        for before in range(start - 1, -1, -1):
            decided = _compared(order[before], order[place], shape, strides)
            if decided > 0:
                order[before], order[place] = order[place], order[before]
                place = before
            elif decided < 0:
                break
    return order


def _compared(one: int, other: int, shape: tuple[int, ...], strides: Sequence[Sequence[int]]) -> int:
    """1 where two dimensions change places, -1 where they stay, 0 where no input decides."""
    for read in strides:
        if read[one] == 0 or read[other] == 0:
            continue
        if read[one] != read[other]:
            return 1 if read[one] > read[other] else -1
        if shape[one] > shape[other]:
            return 1
    return 0

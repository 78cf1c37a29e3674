"""The inputs of a model for another batch: the same rows again; large ones have shapes, but no data."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from torchstone.models.inputs import Inputs

_MOST_FLOATS = 1 << 22  # elements; a capture without data keeps the values of as many
_MOST_INTEGERS = 1 << 26  # and of as many token ids and truth values


class ResizableInputs:
    """Inputs, and the dimensions of each tensor that have the batch, or a multiple of it."""

    def __init__(self, inputs: Inputs, batch: int, dims: Sequence[tuple[int, ...]]) -> None:
        self._inputs = inputs
        self._batch = batch
        self._dims = dims

    def first_dims(self) -> tuple[int, ...]:
        """The dimensions of the first tensor that has some."""
        return next((dims for dims in self._dims if dims), ())

    def resized(self, batch: int) -> Inputs:
        """The inputs for another batch."""
        leaves, tree = _leaves(self._inputs)
        made = [
            _resized(leaf, {dim: leaf.shape[dim] * batch // self._batch for dim in dims})
            if isinstance(leaf, Tensor) and dims
            else leaf
            for leaf, dims in zip(leaves, self._dims, strict=True)
        ]
        args, kwargs = tree_unflatten(made, tree)
        return replace(self._inputs, args=args, kwargs=kwargs)


def by_dimension(inputs: Inputs, dim: int) -> tuple[int, tuple[ResizableInputs, ...]] | None:
    """The batch if it is a dimension of the first tensor, and which tensors may have it there; None where it is none.

    Most likely all that have this size there; else a mask [batch, batch] is one over as many tokens, or it is the first
    tensor alone.
    """
    leaves, _ = _leaves(inputs)
    shapes = [leaf.shape if isinstance(leaf, Tensor) else None for leaf in leaves]
    first = next((shape for shape in shapes if shape is not None), ())
    if len(first) <= dim or not first[dim]:
        return None
    batch, number = first[dim], next(at for at, shape in enumerate(shapes) if shape is not None)
    same = [shape is not None and shape[dim : dim + 1] == (batch,) for shape in shapes]
    no_square = [one and shape != (batch, batch) for one, shape in zip(same, shapes, strict=True)]
    no_square[number] = True
    alone = [one == number for one in range(len(shapes))]
    choices = dict.fromkeys(tuple((dim,) if one else () for one in chosen) for chosen in (same, no_square, alone))
    return batch, tuple(ResizableInputs(inputs, batch, dims) for dims in choices)


def by_comparison(inputs: Inputs, batch: int, doubled: Inputs) -> ResizableInputs | None:
    """Inputs that were generated for a batch and for its double; None where they differ in another way than by it.

    A cache, for example, is an object of its own, which cannot be compared.
    """
    (before, tree), (after, other) = _leaves(inputs), _leaves(doubled)
    if tree != other:
        return None
    found = [_doubled_dims(one, two) for one, two in zip(before, after, strict=True)]
    dims = [one for one in found if one is not None]
    return ResizableInputs(inputs, batch, dims) if len(dims) == len(found) and any(dims) else None


def _leaves(inputs: Inputs) -> tuple[list[object], TreeSpec]:
    return tree_flatten((inputs.args, inputs.kwargs))


def _doubled_dims(before: object, after: object) -> tuple[int, ...] | None:
    if not isinstance(before, Tensor) or not isinstance(after, Tensor):
        return () if isinstance(before, bool | int | float | str | None) and before == after else None
    sizes = list(zip(before.shape, after.shape, strict=True)) if before.dim() == after.dim() else [(0, 1)]
    if any(two not in (one, 2 * one) for one, two in sizes):
        return None
    return tuple(dim for dim, (one, two) in enumerate(sizes) if one != two)


def _resized(tensor: Tensor, sizes: dict[int, int]) -> Tensor:
    shape = [sizes.get(dim, size) for dim, size in enumerate(tensor.shape)]
    if any(tensor.stride(dim) == 0 and tensor.shape[dim] > 1 for dim in sizes):  # one row, seen as many
        once = tensor
        for dim in sizes:
            once = once.narrow(dim, 0, 1)
        return once.expand(shape)
    elements = torch.Size(shape).numel()
    has_values = not tensor.is_meta and elements <= (_MOST_FLOATS if tensor.is_floating_point() else _MOST_INTEGERS)
    if has_values and tensor.numel():
        made = tensor.detach()
        for dim, size in sizes.items():
            made = made.index_select(dim, torch.arange(size, device=tensor.device) % tensor.shape[dim])
        return made.requires_grad_(tensor.requires_grad)
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    made = torch.empty_permuted(shape, order, dtype=tensor.dtype, device="meta")
    return made.requires_grad_(tensor.requires_grad)

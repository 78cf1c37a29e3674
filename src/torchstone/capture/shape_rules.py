"""Shapes of the most common ops without a detour: torch's own meta kernels, and rules for ops that have none.

PyTorch's fake tensors take an op that is called with new shapes apart in Python: a batch norm costs several
milliseconds, again for each width. Here the ops that most models consist of go straight to their compiled meta kernel.
Batch norm, layer norm, convolution and a few activations have none. They get a rule for the plain case, in which all
arguments are contiguous and of one element type; in all other cases, and for all other ops, the fake tensors decide.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

Arguments = tuple[Any, ...]

_aten = torch.ops.aten
_CPU = torch.device("cpu")
_META = torch.device("meta")
_FOUR = 4

# Ops whose meta kernel is compiled, and gives the shape, strides and element type that the real kernel gives.
_COMPILED = frozenset({
    _aten.relu.default, _aten.silu.default, _aten.sigmoid.default, _aten.tanh.default, _aten.gelu.default,
    _aten.neg.default, _aten.exp.default, _aten.sqrt.default, _aten.rsqrt.default, _aten.sin.default, _aten.cos.default,
    _aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.div.Tensor, _aten.pow.Tensor_Scalar,
    _aten.mm.default, _aten.bmm.default, _aten.addmm.default, _aten.cat.default, _aten.mean.dim, _aten._softmax.default,
    _aten.view.default, _aten.slice.Tensor, _aten.transpose.int, _aten.t.default, _aten.permute.default,
    _aten._unsafe_view.default, _aten.clone.default, _aten.unbind.int, _aten.split.Tensor,
    _aten.expand.default, _aten.unsqueeze.default, _aten.select.int, _aten.detach.default, _aten.alias.default,
})  # fmt: skip
_LIKE_INPUT = frozenset({
    _aten.hardswish.default, _aten.hardtanh.default, _aten.hardsigmoid.default, _aten.leaky_relu.default,
    _aten.relu.default, _aten.silu.default, _aten.sigmoid.default, _aten.tanh.default, _aten.gelu.default,
})  # fmt: skip

Made = list[tuple[tuple[int, ...], tuple[int, ...]]]  # shape and strides of each result


def run_by_rule(
    mode: FakeTensorMode, op: OpOverload, args: Arguments, kwargs: Mapping[str, object], tensors: Sequence[Tensor]
) -> Any:
    """The result of an op on fake tensors; None where there is no rule for the op or for these arguments."""
    rule = _RULES.get(op)
    made = None
    if rule is not None and not kwargs and len({one.dtype for one in tensors}) == 1:
        suits = _is_ordinary if rule is _layer_norm else _is_plain  # it copies what is not contiguous
        made = rule(*args) if all(map(suits, tensors)) else None
    if made is None:
        if op not in _COMPILED or not tensors or not all(map(_is_ordinary, tensors)):
            return None
        with in_kernel_invocation_manager(mode):
            result = op(*args, **kwargs)
        if isinstance(result, Tensor):
            return FakeTensor(mode, result, _CPU)
        return [FakeTensor(mode, one, _CPU) for one in result]
    dtype = tensors[0].dtype
    results = [
        FakeTensor(mode, torch.empty_strided(shape, strides, dtype=dtype, device=_META), _CPU)
        for shape, strides in made
    ]
    return results[0] if len(results) == 1 else tuple(results)


def _is_ordinary(tensor: Tensor) -> bool:
    return (
        type(tensor) is FakeTensor
        and tensor.fake_device == _CPU
        and tensor.layout is torch.strided
        and not tensor.is_complex()
    )


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is floating-point and lies in memory in the order of its dimensions."""
    return _is_ordinary(tensor) and tensor.is_floating_point() and tensor.stride() == row_major(tensor.shape)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _contiguous(*shapes: Sequence[int]) -> Made:
    return [(tuple(shape), row_major(shape)) for shape in shapes]


def _like_input(given: Tensor, *_: object) -> Made:
    return _contiguous(given.shape)


def _pointwise(one: Tensor, other: object) -> Made | None:
    """A pair of equal shapes, or a smaller tensor beside one whose dimensions have a clear order in memory."""
    if not isinstance(other, Tensor):
        return _contiguous(one.shape) if isinstance(other, int | float) else None
    if one.shape == other.shape:
        return _contiguous(one.shape)
    large, small = (one, other) if one.dim() >= other.dim() and one.numel() >= other.numel() else (other, one)
    sizes = large.shape[large.dim() - small.dim() :]
    covers = large.dim() >= small.dim() and all(
        size in (1, full) for size, full in zip(small.shape, sizes, strict=True)
    )
    ordered = all(outer > inner for outer, inner in pairwise(large.stride()))
    return _contiguous(large.shape) if covers and ordered and large.numel() else None


def _concatenated(tensors: Sequence[Tensor], dim: int = 0) -> Made | None:
    first = tensors[0]
    dim = dim % first.dim() if first.dim() else 0
    rest = {(*one.shape[:dim], *one.shape[dim + 1 :]) for one in tensors}
    if len(rest) != 1 or any(one.dim() != first.dim() or not one.numel() for one in tensors):
        return None
    return _contiguous((*first.shape[:dim], sum(one.shape[dim] for one in tensors), *first.shape[dim + 1 :]))


def _mean(given: Tensor, dims: Sequence[int] | None, keepdim: bool = False) -> Made | None:  # noqa: FBT001, FBT002 - torch's
    if not dims or not given.numel():
        return None
    gone = {dim % given.dim() for dim in dims}
    if keepdim:
        return (
            None
            if len(gone) == given.dim()
            else _contiguous([1 if place in gone else size for place, size in enumerate(given.shape)])
        )
    return _contiguous([size for place, size in enumerate(given.shape) if place not in gone])


def _product(one: Tensor, other: Tensor) -> Made | None:
    fits = one.shape[-1] == other.shape[-2] and one.shape[:-2] == other.shape[:-2]
    return _contiguous((*one.shape[:-1], other.shape[-1])) if fits else None


def _product_with_bias(bias: Tensor, one: Tensor, other: Tensor) -> Made | None:
    return _product(one, other) if tuple(bias.shape) == (other.shape[-1],) else None


def _batch_norm(given: Tensor, *rest: Any) -> Made | None:
    """In evaluation, no statistics are saved."""
    training = rest[4]
    return None if training else _contiguous(given.shape, (0,), (0,))


def _layer_norm(given: Tensor, shape: Sequence[int], *_: object) -> Made | None:
    if given.dtype is not torch.float32:  # the statistics of narrow types have a type of their own
        return None
    rows = (*given.shape[: given.dim() - len(shape)], *(1 for _ in shape))
    return _contiguous(given.shape, rows, rows)


def _convolution(given: Tensor, weight: Tensor, *rest: Any) -> Made | None:
    _, stride, padding, dilation, transposed, _, _ = rest
    spatial = given.dim() - 2
    if transposed or given.dim() != _FOUR or not all(len(one) in (1, spatial) for one in (stride, padding, dilation)):
        return None
    sides = []
    for place in range(spatial):
        step, pad, spread = (one[place if len(one) > 1 else 0] for one in (stride, padding, dilation))
        side = (given.shape[2 + place] + 2 * pad - spread * (weight.shape[2 + place] - 1) - 1) // step + 1
        if side < 1:
            return None  # torch's own message is better
        sides.append(side)
    return _contiguous((given.shape[0], weight.shape[0], *sides)) if _matches(given, weight, rest) else None


def _matches(given: Tensor, weight: Tensor, rest: Arguments) -> bool:
    """Whether channels, groups and bias agree; torch's own message is better where they do not."""
    bias, groups = rest[0], rest[-1]
    fits = given.shape[1] == weight.shape[1] * groups and weight.shape[0] % groups == 0 and given.numel() > 0
    return fits and (bias is None or tuple(bias.shape) == (weight.shape[0],))


_RULES: dict[OpOverload, Callable[..., Made | None]] = {
    **dict.fromkeys(_LIKE_INPUT, _like_input),
    **dict.fromkeys((_aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.div.Tensor), _pointwise),
    _aten.cat.default: _concatenated,
    _aten.mean.dim: _mean,
    _aten.mm.default: _product,
    _aten.bmm.default: _product,
    _aten.addmm.default: _product_with_bias,
    _aten.native_batch_norm.default: _batch_norm,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.convolution.default: _convolution,
}

"""Results of CPU kernels where torch's own rules for tensors without data say otherwise."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._prims_common import suggest_memory_format

from torchstone.capture.ops import schema_of
from torchstone.capture.view_rules import pointwise, row_major

Result = Any  # a tensor, or a tuple of tensors and of None
Given = Mapping[str, Any]  # arguments by name
New = Callable[[Tensor, tuple[int, ...], torch.dtype], Tensor]  # a tensor of a shape, with other strides, another type

Change = Callable[[Given, Result, New], Result]  # of a result, by the arguments

_aten = torch.ops.aten
_IMAGE = 4  # dimensions of a batch of images
_ALIGNMENT_BYTES = 16  # of the rows of a grouped matmul


def as_kernel(op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object], result: Result, new: New) -> Result:
    """What the kernel of an op gives, by what torch's rule gave; raises where the kernel refuses the arguments."""
    change = _CHANGES.get(op)
    if change is not None:
        given = schema_of(op).defaults | dict(zip(schema_of(op).argument_names, args, strict=False)) | dict(kwargs)
        result = change(given, result, new)
    layout = KERNEL_LAYOUTS.get(op)
    return result if layout is None else _laid_out(layout(*args), result, new)


# Results that are left out, of another type, or memory of their own.


def _statistics(given: Given, result: Result, new: New) -> Result:
    """A norm saves statistics of a narrow input in the type of its float32 parameters, and takes no other mixture."""
    dtype = given["input"].dtype
    others = [given.get(name) for name in ("weight", "bias", "running_mean", "running_var")]
    mixed = {one.dtype for one in others if one is not None} - {dtype}
    if not mixed:
        return result
    if mixed != {torch.float32} or dtype not in (torch.bfloat16, torch.float16):
        names = ", ".join(sorted(str(one).removeprefix("torch.") for one in mixed))
        msg = f"mixed dtype (CPU): a norm of {str(dtype).removeprefix('torch.')} has parameters of {names}"
        raise RuntimeError(msg)
    return (result[0], *(new(one, one.stride(), torch.float32) for one in result[1:]))


def _like_its_input(given: Given, result: Result, new: New) -> Result:
    """The gradient of an input has the type of the input, whatever the type of the statistics."""
    first, dtype = result[0], given["input"].dtype
    return result if first is None or first.dtype is dtype else (new(first, first.stride(), dtype), *result[1:])


def _asked_gradients(given: Given, result: Result, _new: New) -> Result:
    """No gradient of an input that is not asked for."""
    return result if given["output_mask"][0] else (None, *result[1:])


def _no_workspace(given: Given, result: Result, _new: New) -> Result:
    """What the backward pass needs is kept for training alone."""
    return result if given["train"] else (*result[:3], None)


def _own_biases(_given: Given, result: Result, new: New) -> Result:
    """The gradients of both biases are equal, and each has memory of its own."""
    *before, first, second, hidden, cell = result
    if second is first:
        second = new(first, first.stride(), first.dtype)
    return (*before, first, second, hidden, cell)


def _asked_weights(given: Given, result: Result, _new: New) -> Result:
    """No attention weights where they are not asked for."""
    return result if given["need_weights"] else (result[0], None)


_CHANGES: Mapping[OpOverload, Change] = {
    _aten.native_batch_norm.default: _statistics,
    _aten.native_layer_norm.default: _statistics,
    _aten.native_group_norm.default: _statistics,
    _aten.native_batch_norm_backward.default: _asked_gradients,
    _aten.native_group_norm_backward.default: _like_its_input,
    _aten.mkldnn_rnn_layer.default: _no_workspace,
    _aten.mkldnn_rnn_layer_backward.default: _own_biases,
    _aten._native_multi_head_attention.default: _asked_weights,
}


# Ops whose kernels lay out their first result in another way than torch's own rule says: arguments -> its strides.


def _suggested(given: Tensor) -> tuple[int, ...]:
    """The strides of new images in channels-last order or contiguous, as a norm chooses by its input."""
    if given.is_contiguous():
        return row_major(given.shape)
    return torch.empty(given.shape, device="meta", memory_format=suggest_memory_format(given)).stride()


def _of_both(gradient: Tensor, given: Tensor) -> tuple[int, ...]:
    """The strides of what is computed from a gradient and a tensor of its shape, one by one."""
    made = pointwise([gradient, given], with_number=False)
    return row_major(given.shape) if made is None else made[1]


def _unpooled(given: Tensor, _places: Tensor, size: Sequence[int]) -> tuple[int, ...]:
    """Images of another size in the order of those given."""
    shape = (*given.shape[:-2], *size)
    if given.dim() != _IMAGE:
        return row_major(shape)
    return torch.empty(shape, device="meta", memory_format=suggest_memory_format(given)).stride()


KERNEL_LAYOUTS: Mapping[OpOverload, Callable[..., tuple[int, ...]]] = {
    _aten.max_unpool2d.default: _unpooled,
    _aten.native_batch_norm.default: lambda given, *_: _suggested(given),
    _aten.native_batch_norm_backward.default: lambda _, given, *__: _suggested(given),
    _aten.native_group_norm_backward.default: lambda _, given, *__: _suggested(given),
    **{
        op: lambda _, given, *__: row_major(given.shape)
        for op in (
            _aten.native_layer_norm_backward.default,
            _aten._log_softmax_backward_data.default,
            _aten.glu_backward.default,
            _aten.mse_loss_backward.default,
        )
    },
    **{
        op: lambda gradient, given, *_: _of_both(gradient, given)
        for op in (
            _aten.hardswish_backward.default,
            _aten.hardsigmoid_backward.default,
            _aten.hardtanh_backward.default,
            _aten.softplus_backward.default,
            _aten.logit_backward.default,
            _aten.native_dropout_backward.default,
        )
    },
    _aten.elu_backward.default: lambda gradient, *args: _of_both(gradient, args[-1]),
}


def _laid_out(strides: tuple[int, ...], result: Result, new: New) -> Result:
    """The first result of an op as its kernel writes it."""
    if isinstance(result, tuple):
        return (_laid_out(strides, result[0], new), *result[1:])
    if result is None or result.stride() == strides or not result.numel():
        return result
    return new(result, strides, result.dtype)


# A grouped matmul, for which torch's rule refuses types that its kernel takes.


def grouped_result(first: Tensor, second: Tensor, ends: Any) -> tuple[list[int], list[int]]:
    """Shape and strides of a grouped matmul: the dimension of the groups is in one, in both or in neither of two."""
    aligned = _ALIGNMENT_BYTES // first.dtype.itemsize
    if any(max(tensor.stride()[-2:]) % aligned for tensor in (first, second)):
        msg = "strides should be multiple of 16 bytes"
        raise RuntimeError(msg)
    rows, columns = first.shape[-2], second.shape[-1]
    groups = [] if first.dim() != second.dim() else [first.shape[0] if first.dim() > 2 else ends.shape[0]]  # noqa: PLR2004 - matrices
    step = -(-columns // aligned) * aligned
    return [*groups, rows, columns], [*([rows * step] if groups else []), step, 1]

"""Faults that a port may have, planted in one op call of a run; and legal differences, which every op call has.

`FaultMode` changes one op call, `ReorderedMode` computes every reduction in another order and with other kernels, as a
correct port does. Both are dispatch modes: the model's own code runs.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from torchstone.numerics.dispatch import KernelOpMode, op_name
from torchstone.numerics.number_formats import round_to

Kernel = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]  # op, args, kwargs -> result

_MATMULS = ("mm", "addmm", "bmm", "baddbmm", "convolution")
_ATTENTION = ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math")
_NORMS = {"native_layer_norm": 4, "native_batch_norm": 7, "native_group_norm": 7, "_fused_rms_norm": 3}  # place of eps
_ACTIVATIONS = {
    "gelu": torch.relu, "silu": torch.relu, "relu": functional.gelu, "tanh": functional.hardtanh,
    "sigmoid": functional.hardsigmoid, "hardswish": functional.silu, "mish": functional.silu,
}  # fmt: skip
_WRONG_EPS = 1e-5  # at least: ten times the right one otherwise
_LOWEST_MASK = -1e4  # what is below hides a position


def short_name(func: Any) -> str:
    """The op without its overload and the underscore of its in-place form."""
    return op_name(func).split(".")[1].removesuffix("_")


def is_mutable(func: Any) -> bool:
    """Whether an op writes to an argument."""
    return bool(func._schema.is_mutable)  # noqa: SLF001 - torch has no other name for it


# --- Faults: each is a kernel for the ops that it applies to ---


def _scaled(factor: float) -> Kernel:
    def run(func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs) * factor

    return run


def _without_bias(func: Any, args: Any, kwargs: Any) -> Any:
    if short_name(func) == "addmm":
        return torch.mm(args[1], args[2])
    return func(args[0], args[1], None, *args[3:], **kwargs)


def _other_activation(func: Any, args: Any, _kwargs: Any) -> Any:
    found = _ACTIVATIONS[short_name(func)](args[0])
    return args[0].copy_(found) if is_mutable(func) else found


def _swapped_heads(func: Any, args: Any, kwargs: Any) -> Any:
    values, *rest = func(*args, **kwargs)
    return (values.roll(1, 1), *rest)


def _shifted_mask(func: Any, args: Any, kwargs: Any) -> Any:
    """Every query sees one position more than it should: the next one, or the first of the padding."""
    kwargs, query, key = dict(kwargs), args[0], args[1]
    mask = kwargs.get("attn_mask")
    if mask is None:
        rows, columns = query.shape[-2], key.shape[-2]
        seen = torch.ones(rows, columns, dtype=torch.bool).tril(1 + columns - rows)
        mask = torch.zeros(rows, columns, dtype=query.dtype).masked_fill(~seen, -torch.inf).expand(1, 1, -1, -1)
        args = (*args[:4], False)
    else:
        hidden = mask < _LOWEST_MASK if mask.is_floating_point() else ~mask
        left = torch.cat([torch.zeros_like(hidden[..., :1]), hidden[..., :-1]], -1)
        shown = torch.zeros_like(mask) if mask.is_floating_point() else torch.ones_like(mask)
        mask = torch.where(hidden & ~left, shown, mask)
    return func(*args, **(kwargs | {"attn_mask": mask}))


def _in_bfloat16(func: Any, args: Any, kwargs: Any) -> Any:
    rounded = [one.bfloat16().float() if isinstance(one, Tensor) else one for one in args]
    return func(*rounded, **kwargs).bfloat16().float()


def _without_residual(_func: Any, args: Any, _kwargs: Any) -> Any:
    return args[1].clone()


def _other_eps(func: Any, args: Any, kwargs: Any) -> Any:
    name = short_name(func)
    if name == "rsqrt":
        return func(args[0] + _WRONG_EPS)
    place = _NORMS[name]
    return func(*args[:place], max(10 * (args[place] or 0), _WRONG_EPS), *args[place + 1 :], **kwargs)


def _is_residual(args: Any) -> bool:
    two = len(args) == 2 and all(isinstance(one, Tensor) and one.is_floating_point() for one in args)
    if not two or args[0].shape != args[1].shape or isinstance(args[1], nn.Parameter):
        return False
    return args[0].dim() == 3 or (args[0].dim() == 4 and args[0].shape[-1] == args[0].shape[-2])  # tokens, or pixels


def _has_mask(args: Any, kwargs: Any) -> bool:
    mask = kwargs.get("attn_mask")
    if mask is None:
        return len(args) > 4 and bool(args[4]) and args[0].shape[-2] > 1
    hidden = mask < _LOWEST_MASK if mask.is_floating_point() else ~mask
    return bool((hidden[..., 1:] & ~hidden[..., :-1]).any())


class Fault:
    """A kind of fault: which op calls it can be planted in, and what these do then."""

    def __init__(self, name: str, applies: Callable[[str, Any, Any], bool], kernel: Kernel) -> None:
        self.name = name
        self._applies = applies
        self.kernel = kernel

    def applies(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Whether it can be planted in this op call."""
        return self._applies(short_name(func), args, kwargs)


def _is_biased(name: str, args: Any, _kwargs: Any) -> bool:
    return name == "addmm" or (name == "convolution" and isinstance(args[2], Tensor))


FAULTS = (
    Fault("1 % scale", lambda name, *_: name in _MATMULS, _scaled(1.01)),
    Fault("20 % scale", lambda name, *_: name in _MATMULS, _scaled(1.2)),
    Fault("dropped bias", _is_biased, _without_bias),
    Fault("wrong activation", lambda name, *_: name in _ACTIVATIONS, _other_activation),
    Fault(
        "transposed heads", lambda name, args, _: name in _ATTENTION and args[0].shape[1] > 1, _swapped_heads
    ),
    Fault(
        "off-by-one mask", lambda name, args, kwargs: name in _ATTENTION and _has_mask(args, kwargs), _shifted_mask
    ),
    Fault("missing residual", lambda name, args, _: name == "add" and _is_residual(args), _without_residual),
    Fault("wrong eps", lambda name, *_: name in (*_NORMS, "rsqrt"), _other_eps),
    Fault(
        "bf16 accumulation in fp32",
        lambda name, args, _: name in _MATMULS and args[0].dtype == torch.float32,
        _in_bfloat16,
    ),
)  # fmt: skip


class FaultMode(KernelOpMode):
    """Plants a fault in the op call of one number, counted from the start of the run."""

    def __init__(self, fault: Fault, number: int) -> None:
        super().__init__()
        self._fault = fault
        self._left = number

    def run_op(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op, or what stands in its place."""
        self._left -= 1
        return self._fault.kernel(func, args, kwargs) if self._left == -1 else func(*args, **kwargs)


# --- Legal differences ---


def _in_parts(left: Tensor, right: Tensor) -> Tensor:
    """A product whose sum is made of three parts in float32, the last one first."""
    size = left.shape[-1]
    cuts = sorted({0, size // 3, 2 * size // 3, size})
    wide = torch.float32 if left.dtype in (torch.bfloat16, torch.float16) else left.dtype
    parts = [left[..., start:end].to(wide) @ right[..., start:end, :].to(wide) for start, end in pairwise(cuts)]
    total = parts[-1]
    for part in parts[-2::-1]:
        total = total + part
    return total


def _addmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return (_in_parts(left, right) * alpha + bias * beta).to(left.dtype)


def _flipped_sum(func: Any, args: Any, kwargs: Any) -> Any:
    dims = args[1] if len(args) > 1 and args[1] else list(range(args[0].dim()))
    return func(args[0].flip(dims), *args[1:], **kwargs)


def _softmax(values: Tensor, dim: int, *_: object) -> Tensor:
    wide = values.float() if values.dtype != torch.float64 else values
    powers = torch.exp2((wide - wide.amax(dim, keepdim=True)) * 1.4426950408889634)
    return (powers * powers.flip(dim).sum(dim, keepdim=True).reciprocal()).nan_to_num(nan=torch.nan).to(values.dtype)


def _layer_norm(values: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    wide = values.float()
    dims = list(range(-len(shape), 0))
    mean = wide.flip(dims).mean(dims, keepdim=True)
    rstd = 1 / (wide.square().mean(dims, keepdim=True) - mean.square() + eps).sqrt()  # the textbook's other formula
    found = (wide - mean) * rstd
    found = found if weight is None else found * weight.float()
    return (found if bias is None else found + bias.float()).to(values.dtype), mean, rstd


def _gelu(values: Tensor, *, approximate: str = "none") -> Tensor:
    wide = values.float()
    if approximate == "tanh":
        inner = 0.7978845608028654 * wide * (1 + 0.044715 * wide * wide)
        return (wide / (1 + torch.exp(-2 * inner))).to(values.dtype)
    return (wide * torch.special.erfc(wide * -0.7071067811865476) / 2).to(values.dtype)


_OTHER_KERNELS: dict[str, Callable[..., Any]] = {
    "mm": lambda left, right: _in_parts(left, right).to(left.dtype),
    "bmm": lambda left, right: _in_parts(left, right).to(left.dtype),
    "addmm": _addmm,
    "_softmax": _softmax,
    "native_layer_norm": _layer_norm,
    "gelu": _gelu,
    "silu": lambda values: (values.float() * torch.sigmoid(values.float())).to(values.dtype),
    "rsqrt": lambda values: (1 / values.float().sqrt()).to(values.dtype),
}


class ReorderedMode(KernelOpMode):
    """A correct port: every product is summed in parts, every reduction backwards, some kernels by other formulas."""

    def run_op(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op in another legal way."""
        name = short_name(func)
        if is_mutable(func) or not any(isinstance(one, Tensor) and one.is_floating_point() for one in args):
            return func(*args, **kwargs)
        if name in _OTHER_KERNELS:
            return _OTHER_KERNELS[name](*args, **kwargs)
        if name in ("sum", "mean"):
            return _flipped_sum(func, args, kwargs)
        if name == "convolution" and args[0].dtype in (torch.bfloat16, torch.float16):
            wide = [one.float() if isinstance(one, Tensor) else one for one in args]
            return func(*wide, **kwargs).to(args[0].dtype)
        return func(*args, **kwargs)


# --- A port in bfloat16 with weights in block floats, correct or with another rounding ---


def _truncated(tensor: Tensor, name: str) -> Tensor:
    """Towards zero instead of to the nearest step."""
    nearest = round_to(tensor.double(), name)
    over = nearest.abs() > tensor.abs().double()
    lower = round_to(tensor.double() - (nearest - tensor.double()) * 1.001, name)
    return torch.where(over, lower, nearest).to(tensor.dtype)


ROUNDINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "nearest": lambda tensor: round_to(tensor, "bfloat8_b"),
    "block float: truncated": lambda tensor: _truncated(tensor, "bfloat8_b"),
    "block float: 3 bits for 7": lambda tensor: round_to(tensor, "bfloat4_b"),
}


class BlockFloatMode(KernelOpMode):
    """Runs a float32 model as a device does: weights in bfloat8_b, activations in bfloat16."""

    def __init__(self, rounding: str, weights: Iterable[Tensor]) -> None:
        super().__init__()
        self._round = ROUNDINGS[rounding]
        self._weights = {one.untyped_storage().data_ptr() for one in weights if one.dim() > 1}
        self._on_device = WeakTensorKeyDictionary()  # tables that code makes from integers come from the host

    def run_op(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op on rounded arguments, and round its result."""
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        if not any(isinstance(one, nn.Parameter) or one in self._on_device for one in tensors):
            return func(*args, **kwargs)
        result = self._run(func, args, kwargs)
        for one in tree_leaves(result):
            if isinstance(one, Tensor) and one.is_floating_point():
                self._on_device[one] = True
        return result

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if is_mutable(func) or any(one.alias_info is not None for one in func._schema.returns):  # noqa: SLF001
            return func(*args, **kwargs)
        result = func(*(self._read(one) for one in args), **{name: self._read(one) for name, one in kwargs.items()})
        if isinstance(result, (tuple, list)):
            return type(result)(_as_bfloat16(one) for one in result)
        return _as_bfloat16(result)

    def _read(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        if value.dim() > 1 and value.untyped_storage().data_ptr() in self._weights:  # or a view of a weight
            return self._round(value.detach())
        return _as_bfloat16(value)


def _as_bfloat16(value: Any) -> Any:
    is_float = isinstance(value, Tensor) and value.dtype == torch.float32
    return value.detach().bfloat16().float() if is_float else value

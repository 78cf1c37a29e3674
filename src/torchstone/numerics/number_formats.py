"""Number formats of accelerators: how fine they are, and rounding float tensors to them.

A format is a dtype of torch by its name, or a block float of Tenstorrent: `bfloat8_b` and `bfloat4_b` store 16
neighbours of the last dimension with one exponent, and sign and 7 or 3 bits of each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchstone.numerics.dtypes import dtype_name, dtype_named

BLOCK = 16  # elements of the last dimension that share an exponent
_BLOCK_BITS = {"bfloat8_b": 7, "bfloat4_b": 3, "bfloat2_b": 1}  # magnitude bits of each element
_PLAIN = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
FORMATS = (*_PLAIN, *_BLOCK_BITS)


def is_format(name: str) -> bool:
    """Whether values can be rounded to a format of this name."""
    return name in FORMATS


def spacing(name: str) -> float:
    """The relative distance of neighbours just above 1; for a block float, next to the largest of its block."""
    if name in _BLOCK_BITS:
        return 2.0 ** (1 - _BLOCK_BITS[name])
    return float(torch.finfo(dtype_named(name)).eps)


def smallest(name: str) -> float:
    """Below this a format may lose all digits: its smallest normal number."""
    return float(torch.finfo(torch.bfloat16 if name in _BLOCK_BITS else dtype_named(name)).tiny)


def largest(name: str) -> float:
    """The largest finite number."""
    return float(torch.finfo(torch.bfloat16 if name in _BLOCK_BITS else dtype_named(name)).max)


def half_range(dtype: torch.dtype) -> float:
    """Half of the largest number of a float dtype: what is beyond it stands for infinity, as in masks."""
    return largest(float_format(dtype)) / 2


def float_format(dtype: torch.dtype) -> str:
    """The format of the real numbers in a dtype: float32 for complex64; "" for integers and booleans."""
    if dtype.is_complex:
        return {torch.complex32: "float16", torch.complex64: "float32"}.get(dtype, "float64")
    return dtype_name(dtype) if dtype.is_floating_point else ""


def round_to(tensor: Tensor, name: str) -> Tensor:
    """The nearest values of a format, in the dtype that the tensor has."""
    if name in _BLOCK_BITS:
        return _round_blocks(tensor, _BLOCK_BITS[name])
    target = dtype_named(name)
    return tensor if tensor.dtype == target else tensor.to(target).to(tensor.dtype)


def is_rounded_to(tensor: Tensor, name: str) -> bool:
    """Whether all values are numbers of a format already."""
    rounded = round_to(tensor, name)
    return bool(((rounded == tensor) | tensor.isnan()).all())


def _round_blocks(tensor: Tensor, bits: int) -> Tensor:
    """Blocks of 16 in the last dimension: the exponent of the largest, nearest steps of it; ties to even."""
    if tensor.dim() == 0 or tensor.numel() == 0:
        return round_to(tensor, "bfloat16")
    width = tensor.shape[-1]
    padded = torch.nn.functional.pad(tensor.double(), (0, -width % BLOCK))
    blocks = padded.unflatten(-1, (-1, BLOCK))
    top = blocks.abs().nan_to_num(posinf=0.0).amax(-1, keepdim=True)
    _, exponent = torch.frexp(top)  # top = m * 2**exponent with m in [0.5, 1)
    step = torch.ldexp(torch.ones_like(top), exponent - bits)
    limit = 2.0**bits - 1
    rounded = (blocks / step).round().clamp(-limit, limit) * step
    rounded = torch.where(blocks.isfinite(), torch.where(top == 0, blocks, rounded), blocks)
    return rounded.flatten(-2)[..., :width].to(tensor.dtype)

"""Which tensors have values that a file can keep."""

import torch
from torch import Tensor, nn

_SAVED_DTYPES = frozenset({
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool,
    torch.complex64,
})  # fmt: skip


def why_not_saved(tensor: Tensor) -> str:
    """Why the values of a tensor cannot be kept; "" when they can."""
    if tensor.dtype not in _SAVED_DTYPES and not why_not_plain(tensor):
        return f"safetensors has no {str(tensor.dtype).removeprefix('torch.')}"
    return why_not_plain(tensor)


def why_not_plain(tensor: Tensor) -> str:
    """Why a tensor is more than a block of numbers; "" when it is none."""
    if type(tensor) not in (Tensor, nn.Parameter):
        return f"a {type(tensor).__name__} is no plain tensor"
    if tensor.layout != torch.strided:
        return f"its layout is {str(tensor.layout).removeprefix('torch.')}"
    return "it is quantised" if tensor.is_quantized else ""

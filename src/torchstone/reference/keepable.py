"""Which tensors have values that a file can keep."""

import torch
from torch import Tensor, nn

from torchstone.numerics.dtypes import dtype_name
from torchstone.numerics.tensor_files import SAFETENSORS_DTYPES


def why_not_saved(tensor: Tensor) -> str:
    """Why the values of a tensor cannot be kept; "" when they can."""
    if tensor.dtype not in SAFETENSORS_DTYPES and not why_not_plain(tensor):
        return f"safetensors has no {dtype_name(tensor.dtype)}"
    return why_not_plain(tensor)


def why_not_plain(tensor: Tensor) -> str:
    """Why a tensor is more than a block of numbers; "" when it is none."""
    if type(tensor) not in (Tensor, nn.Parameter):
        return f"a {type(tensor).__name__} is no plain tensor"
    if tensor.layout != torch.strided:
        return f"its layout is {str(tensor.layout).removeprefix('torch.')}"
    return "it is quantised" if tensor.is_quantized else ""

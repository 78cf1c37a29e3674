"""Torch tensors <-> numpy arrays, also for the element types that numpy itself does not have."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_BY_ML_DTYPES = {  # numpy has no such types; the package ml_dtypes adds them
    torch.bfloat16: "bfloat16",
    torch.float8_e4m3fn: "float8_e4m3fn",
    torch.float8_e5m2: "float8_e5m2",
    torch.float8_e4m3fnuz: "float8_e4m3fnuz",
    torch.float8_e5m2fnuz: "float8_e5m2fnuz",
    torch.float8_e8m0fnu: "float8_e8m0fnu",
}
_TORCH_OF = {name: dtype for dtype, name in _BY_ML_DTYPES.items()}
_BITS = {1: torch.int8, 2: torch.int16}


def array_of(tensor: Tensor) -> Any:
    """A contiguous array with the values of a tensor."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().cpu()
    name = _BY_ML_DTYPES.get(plain.dtype)
    if name is None:
        return plain.numpy()
    import ml_dtypes

    return plain.view(_BITS[plain.element_size()]).numpy().view(getattr(ml_dtypes, name))


def tensor_of_array(array: object) -> Tensor:
    """A tensor of its own with the values of an array."""
    import numpy

    array = numpy.array(array, copy=True, order="C")
    dtype = _TORCH_OF.get(array.dtype.name)
    if dtype is None:
        return torch.from_numpy(array)
    bits = array.view(numpy.int8 if array.itemsize == 1 else numpy.int16)
    return torch.from_numpy(bits).view(dtype)

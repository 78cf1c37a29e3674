"""What is worth knowing about the values of a tensor: enough to make inputs like them again. Needs torch alone."""

from __future__ import annotations

from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

Facts = dict[str, Any]  # fields of TensorFacts

LARGEST_KEPT_WHOLE = 64  # elements of an integer or boolean tensor: indices, masks and lengths are often this small
_SEEN_AS_FLOAT32 = 1  # bytes of the narrow floats, which have no comparisons of their own


def value_facts(tensor: Tensor) -> Facts | None:
    """Range, NaN and Inf, share of zeros, as the fields of TensorFacts; None where the values cannot be seen."""
    if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    if tensor.device.type == "meta" or (not tensor.dtype.is_floating_point and tensor.dtype.is_complex):
        return None
    values = tensor.detach()
    if values.is_neg():
        values = values.resolve_neg()
    if not values.numel():
        return {}
    return _facts_of_floats(values) if values.is_floating_point() else _facts_of_integers(values)


def _facts_of_floats(values: Tensor) -> Facts:
    if values.element_size() == _SEEN_AS_FLOAT32:
        values = values.float()
    low, high = (float(end) for end in torch.aminmax(values))  # NaN when there is one
    has_nan, has_inf = False, False
    if not (isfinite(low) and isfinite(high)):
        has_nan, has_inf = bool(values.isnan().any()), bool(values.isinf().any())
        finite = values[values.isfinite()]
        ends = torch.aminmax(finite) if finite.numel() else None
        low_high = (None, None) if ends is None else (float(ends[0]), float(ends[1]))
    else:
        low_high = (low, high)
    zeros = 1 - int(values.count_nonzero()) / values.numel()
    return {
        "lowest": low_high[0],
        "highest": low_high[1],
        "has_nan": has_nan,
        "has_inf": has_inf,
        "fewest_zeros": zeros,
        "most_zeros": zeros,
    }


def _facts_of_integers(values: Tensor) -> Facts:
    counted = values.to(torch.uint8) if values.dtype is torch.bool else values
    if counted.dtype in (torch.uint16, torch.uint32, torch.uint64):
        counted = counted.to(torch.int64)  # the wide unsigned types have no comparisons
    low, high = (int(end) for end in torch.aminmax(counted))
    zeros = 1 - int(counted.count_nonzero()) / counted.numel()
    small = values.numel() <= LARGEST_KEPT_WHOLE
    return {
        "lowest": low,
        "highest": high,
        "has_nan": False,
        "has_inf": False,
        "fewest_zeros": zeros,
        "most_zeros": zeros,
        "values": tuple(values.reshape(-1).tolist()) if small else None,
    }

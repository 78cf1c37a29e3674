"""How far two tensors of one shape are apart.

Everything is computed in float64 over the elements that are finite in both, after dividing by the largest magnitude.
A number that does not exist is None, so that the result is JSON.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import torch
from torch import Tensor

_ORDERED_AS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def errors_between(wanted: Tensor, actual: Tensor, *, rtol: float, atol: float) -> dict[str, Any]:
    """Compare two tensors of equal shape."""
    left, right = as_numbers(wanted), as_numbers(actual)
    both = torch.isfinite(left) & torch.isfinite(right)
    same_special = (left.isnan() & right.isnan()) | (left == right)
    misplaced = int((~both & ~same_special).sum())
    nan = [int(left.isnan().sum()), int(right.isnan().sum())]
    inf = [int(left.isinf().sum()), int(right.isinf().sum())]
    left, right = left[both], right[both]
    error = (right - left).abs()
    pcc, reason = correlation(left, right)
    if pcc is not None and not error.any():
        pcc = 1.0  # no rounding in the sums
    return {
        "pcc": pcc,
        "pcc_reason": reason,
        "cosine": _cosine(left, right),
        "relative_l2": _relative_l2(left, right),
        "max_abs": _largest(error),
        "max_rel": _largest(torch.where(left != 0, error / left.abs(), 0.0)) if bool(left.any()) else None,
        "max_ulp": steps_apart(wanted, actual),
        "allclose": misplaced == 0 and bool((error <= atol + rtol * left.abs()).all()),
        "equal": wanted.dtype == actual.dtype and misplaced == 0 and not bool(error.any()),
        "compared": left.numel(),
        "nan": nan,
        "inf": inf,
        "misplaced": misplaced,
    }


def correlation(left: Tensor, right: Tensor) -> tuple[float | None, str]:
    """Pearson's correlation of two flat float64 tensors of finite values, or why there is none."""
    if left.numel() == 0:
        return None, "no finite element in both"
    if left.numel() == 1:
        return None, "a single element"
    constant = [name for name, one in (("expected", left), ("actual", right)) if bool((one == one[0]).all())]
    if constant:
        return None, f"{' and '.join(constant)} constant"
    left, right = _centred(left), _centred(right)
    spread = left.norm() * right.norm()
    if not float(spread):
        return None, "differences too small for float64"
    return min(1.0, max(-1.0, float(left @ right / spread))), ""


def steps_apart(wanted: Tensor, actual: Tensor) -> int | None:
    """The most representable numbers that lie between two finite elements of the same float type."""
    if wanted.dtype != actual.dtype or not wanted.is_floating_point():
        return None
    both = (torch.isfinite(wanted.to(torch.float64)) & torch.isfinite(actual.to(torch.float64))).flatten()
    left, right = _in_order(wanted)[both], _in_order(actual)[both]
    if left.numel() == 0:
        return None
    one_side = (left < 0) == (right < 0)
    apart = torch.where(one_side, (left - right).abs().double(), left.double().abs() + right.double().abs())
    return int(apart.max())


def as_numbers(tensor: Tensor) -> Tensor:
    """A flat float64 tensor; a complex number is two."""
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.to_dense().to(torch.float64).flatten()


def dtype_name(tensor: Tensor) -> str:
    """float32, as torch names it, without "torch."."""
    return str(tensor.dtype).removeprefix("torch.")


def _in_order(tensor: Tensor) -> Tensor:
    """Whole numbers in the order of the floats, neighbours one apart; both zeros are 0."""
    flat = tensor.detach().contiguous().flatten()
    bits = flat.view(_ORDERED_AS[flat.element_size()]).to(torch.int64)
    lowest = -(1 << (8 * flat.element_size() - 1))
    return torch.where(bits < 0, lowest - bits, bits)


def _centred(values: Tensor) -> Tensor:
    scaled = _scaled(values)
    return _scaled(scaled - scaled.mean())


def _scaled(values: Tensor) -> Tensor:
    largest = values.abs().max()
    return values / largest if float(largest) else values


def _cosine(left: Tensor, right: Tensor) -> float | None:
    if left.numel() == 0 or not (left.any() and right.any()):
        return None
    left, right = _scaled(left), _scaled(right)
    return min(1.0, max(-1.0, float(left @ right / (left.norm() * right.norm()))))


def _relative_l2(left: Tensor, right: Tensor) -> float | None:
    """The length of the difference over the length of what was expected; None where that is 0."""
    if left.numel() == 0 or not left.any():
        return None
    difference = right / 2 - left / 2  # halves: the difference of two huge values stays finite
    if not difference.any():
        return 0.0
    lengths = float(_scaled(difference).norm() / _scaled(left).norm())
    scales = float(difference.abs().max() / left.abs().max())
    return min(2 * lengths * scales, sys.float_info.max)


def _largest(error: Tensor) -> float | None:
    """The largest error; None where there is nothing to compare or it is beyond float64."""
    largest = float(error.max()) if error.numel() else math.inf
    return largest if largest != math.inf else None

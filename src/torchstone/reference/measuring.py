"""How far two tensors of one shape are apart: PCC, cosine, absolute, relative and L2 error, NaN and Inf.

Everything is computed in float64 over the elements that are finite in both. Values whose squares would overflow or
vanish are divided by the largest magnitude first. Where a number does not exist it is None, with the reason.
"""

import sys
from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from torchstone.record.comparison import Errors

_SMALLEST, _LARGEST = 1e-100, 1e100  # between them squares, and sums of squares, are safe
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes -> whole numbers of the same bits


class _Finite(NamedTuple):
    golden: Tensor
    candidate: Tensor


def measure(golden: Tensor, candidate: Tensor, *, rtol: float, atol: float) -> Errors:
    """Compare two tensors of equal shape."""
    same = identical(golden, candidate)
    left = _as_numbers(golden)
    right = left if same else _as_numbers(candidate)
    special = _special(left, right)
    finite = special.finite
    if same:
        return _errors_of_equal(special)
    error = (
        _whole_error(golden, candidate) if _are_whole(golden, candidate) else (finite.candidate - finite.golden).abs()
    )
    pcc, reason = correlation(finite.golden, finite.candidate)
    size = finite.golden.abs()
    return Errors(
        pcc=pcc,
        pcc_reason=reason,
        cosine=_cosine(finite),
        max_abs=_largest(error),
        max_rel=_largest_relative(size, error),
        relative_l2=_relative_l2(finite, error),
        allclose=special.misplaced == 0 and bool((error <= (rtol * size).add_(atol)).all()),
        equal=False,
        compared=finite.golden.numel(),
        nan=special.nan,
        inf=special.inf,
        misplaced=special.misplaced,
        worst_at=_index(golden, _worst(left, right, error, special)),
    )


def _worst(left: Tensor, right: Tensor, error: Tensor, special: "_Special") -> int | None:
    """The place where two flat tensors are furthest apart; NaN or Inf in one of them is further than any number."""
    if not left.numel():
        return None
    if error.numel() == left.numel():
        return int(error.argmax())
    apart = torch.where(left == right, 0.0, (right - left).abs())  # equal infinities have no difference
    apart = torch.where(left.isnan() & right.isnan(), 0.0, apart)
    return int((apart.nan_to_num(nan=torch.inf) if special.misplaced else apart).argmax())


def _index(golden: Tensor, place: int | None) -> tuple[int, ...] | None:
    """A place in the flat tensor as an index; a complex number is two places."""
    if place is None:
        return None
    element = torch.tensor(place // (2 if golden.is_complex() else 1))
    return tuple(int(index) for index in torch.unravel_index(element, golden.shape))


def _are_whole(*tensors: Tensor) -> bool:
    return not any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors)


def _whole_error(golden: Tensor, candidate: Tensor) -> Tensor:
    """The distance of whole numbers, which float64 does not tell apart above 2**53."""
    return (candidate.to(torch.int64) - golden.to(torch.int64)).abs().to(torch.float64).flatten()


def _errors_of_equal(special: "_Special") -> Errors:
    """What is known without arithmetic when both are the same."""
    values = special.finite.golden
    has_values = bool(values.numel() and values.any())
    reason = why_no_correlation(values, values)
    return Errors(
        pcc=None if reason else 1.0,
        pcc_reason=reason,
        cosine=1.0 if has_values else None,
        max_abs=0.0 if values.numel() else None,
        max_rel=0.0 if has_values else None,
        relative_l2=0.0 if has_values else None,
        allclose=True,
        equal=True,
        compared=values.numel(),
        nan=special.nan,
        inf=special.inf,
    )


class _Special(NamedTuple):
    """The elements that are finite in both, and how many are not."""

    finite: _Finite
    nan: tuple[int, int] = (0, 0)
    inf: tuple[int, int] = (0, 0)
    misplaced: int = 0  # NaN or infinite on one side and not the same on the other


def _special(golden: Tensor, candidate: Tensor) -> _Special:
    if isfinite(_magnitude(golden)) and isfinite(_magnitude(candidate)):
        return _Special(_Finite(golden, candidate))
    both = torch.isfinite(golden) & torch.isfinite(candidate)
    same = (golden.isnan() & candidate.isnan()) | (golden == candidate)
    return _Special(
        finite=_Finite(golden[both], candidate[both]),
        nan=(int(golden.isnan().sum()), int(candidate.isnan().sum())),
        inf=(int(golden.isinf().sum()), int(candidate.isinf().sum())),
        misplaced=int((~both & ~same).sum()),
    )


def why_no_correlation(golden: Tensor, candidate: Tensor) -> str:
    """Why two flat tensors of finite values have no PCC; "" when they have one."""
    if golden.numel() == 0:
        return "no finite element in both"
    if golden.numel() == 1:
        return "a single element"
    pairs = (("golden", golden), ("candidate", candidate))
    constant = [name for name, one in pairs if bool(one[0] == one[-1]) and bool((one == one[0]).all())]
    return f"{' and '.join(constant)} constant" if constant else ""


def correlation(golden: Tensor, candidate: Tensor) -> tuple[float | None, str]:
    """Pearson's correlation of two flat float64 tensors of finite values, or why there is none."""
    reason = why_no_correlation(golden, candidate)
    if reason:
        return None, reason
    left, right = _centred(golden), _centred(candidate)
    spread = left.norm() * right.norm()
    if not float(spread):
        return None, "differences too small for float64"
    return min(1.0, max(-1.0, float(left @ right / spread))), ""


def _centred(values: Tensor) -> Tensor:
    """Values around their mean, scaled where that is needed before and after it is taken off."""
    scaled = _scaled(values)
    return _scaled(scaled - scaled.mean())


def _magnitude(values: Tensor) -> float:
    """The largest absolute value; 0 for no values, NaN where one is."""
    if not values.numel():
        return 0.0
    lowest, highest = torch.aminmax(values)
    return abs(float(lowest)) if -lowest > highest else abs(float(highest))  # no order holds for NaN: it is in both


def _scaled(values: Tensor) -> Tensor:
    """Values whose squares neither overflow nor vanish: divided by the largest, where they would."""
    largest = _magnitude(values)
    return values / largest if largest and not _SMALLEST < largest < _LARGEST else values


def _cosine(finite: _Finite) -> float | None:
    if not (_magnitude(finite.golden) and _magnitude(finite.candidate)):
        return None
    left, right = _scaled(finite.golden), _scaled(finite.candidate)
    return min(1.0, max(-1.0, float(left @ right / (left.norm() * right.norm()))))


def _relative_l2(finite: _Finite, error: Tensor) -> float | None:
    """The length of the difference over the length of the golden tensor; None where that is 0."""
    size, largest = _magnitude(finite.golden), _magnitude(error)
    if not size:
        return None
    if not largest:
        return 0.0
    if all(_SMALLEST < one < _LARGEST for one in (size, largest)):
        return float(error.norm() / finite.golden.norm())
    difference = finite.candidate / 2 - finite.golden / 2  # halves: the difference of two huge values stays finite
    largest = _magnitude(difference) or sys.float_info.min
    lengths = float((difference / largest).norm() / (finite.golden / size).norm())
    return min(2 * lengths * (largest / size), sys.float_info.max)


def _largest(error: Tensor) -> float | None:
    """The largest error; None where there is nothing to compare or it is beyond float64."""
    if error.numel() == 0:
        return None
    largest = float(error.max())
    return largest if largest != float("inf") else None


def _largest_relative(size: Tensor, error: Tensor) -> float | None:
    """The largest error over the magnitude of its golden element, where that is not 0."""
    if not _magnitude(size):
        return None
    return _largest((error / size).masked_fill_(size == 0, 0.0))


def identical(golden: Tensor, candidate: Tensor) -> bool:
    """The same bits; a NaN equals a NaN at its place, and 0 is not -0."""
    if golden.dtype != candidate.dtype:
        return False
    if golden.is_complex():
        golden, candidate = (torch.view_as_real(one.resolve_conj()) for one in (golden, candidate))
    if not golden.is_floating_point():
        return torch.equal(golden, candidate)
    left, right = (one.view(_BITS[one.element_size()]) for one in (golden, candidate))
    return torch.equal(left, right) or bool(((left == right) | (golden.isnan() & candidate.isnan())).all())


def _as_numbers(tensor: Tensor) -> Tensor:
    """A flat float64 tensor; a complex number is two."""
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.to(torch.float64).flatten()

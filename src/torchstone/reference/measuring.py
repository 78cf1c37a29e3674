"""How far two tensors of one shape are apart: PCC, cosine, absolute, relative and L2 error, NaN and Inf.

Everything is computed in float64 over the elements that are finite in both, after dividing by the largest magnitude,
so that neither float32 squares nor 1e300 overflow. Where a number does not exist it is None, with the reason.
"""

import sys
from typing import NamedTuple

import torch
from torch import Tensor

from torchstone.record.comparison import Errors

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
    return Errors(
        pcc=pcc,
        pcc_reason=reason,
        cosine=_cosine(finite),
        max_abs=_largest(error),
        max_rel=_largest_relative(finite, error),
        relative_l2=_relative_l2(finite),
        allclose=special.misplaced == 0 and bool((error <= atol + rtol * finite.golden.abs()).all()),
        equal=False,
        compared=finite.golden.numel(),
        nan=special.nan,
        inf=special.inf,
        misplaced=special.misplaced,
        worst_at=_worst_at(golden, left, right),
    )


def _worst_at(golden: Tensor, left: Tensor, right: Tensor) -> tuple[int, ...] | None:
    """Where two flat tensors are furthest apart, as an index of the golden tensor."""
    if not left.numel():
        return None
    apart = torch.where(left == right, 0.0, (right - left).abs())  # equal infinities have no difference
    apart = torch.where(left.isnan() & right.isnan(), 0.0, apart).nan_to_num(nan=torch.inf)
    place = int(apart.argmax()) // (2 if golden.is_complex() else 1)
    return tuple(int(index) for index in torch.unravel_index(torch.tensor(place), golden.shape))


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
    both = torch.isfinite(golden) & torch.isfinite(candidate)
    if bool(both.all()):
        return _Special(_Finite(golden, candidate))
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
    """Values around their mean, scaled twice: by the largest value, then by the largest distance from the mean."""
    scaled = _scaled(values)
    around = scaled - scaled.mean()
    return _scaled(around)


def _scaled(values: Tensor) -> Tensor:
    largest = values.abs().max()
    return values / largest if float(largest) else values


def _cosine(finite: _Finite) -> float | None:
    if finite.golden.numel() == 0 or not (finite.golden.any() and finite.candidate.any()):
        return None
    left, right = _scaled(finite.golden), _scaled(finite.candidate)
    return min(1.0, max(-1.0, float(left @ right / (left.norm() * right.norm()))))


def _relative_l2(finite: _Finite) -> float | None:
    """The length of the difference over the length of the golden tensor; None where that is 0."""
    if finite.golden.numel() == 0 or not finite.golden.any():
        return None
    difference = finite.candidate / 2 - finite.golden / 2  # halves: the difference of two huge values stays finite
    if not difference.any():
        return 0.0
    lengths = float(_scaled(difference).norm() / _scaled(finite.golden).norm())
    scales = float(difference.abs().max() / finite.golden.abs().max())
    return min(2 * lengths * scales, sys.float_info.max)


def _largest(error: Tensor) -> float | None:
    """The largest error; None where there is nothing to compare or it is beyond float64."""
    if error.numel() == 0:
        return None
    largest = float(error.max())
    return largest if largest != float("inf") else None


def _largest_relative(finite: _Finite, error: Tensor) -> float | None:
    size = finite.golden.abs()
    if not bool(size.any()):
        return None
    return _largest(torch.where(size > 0, error / size, 0.0))


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

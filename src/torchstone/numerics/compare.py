"""How far two tensors of one shape are apart: PCC, cosine, absolute, relative, L2 and ULP error, NaN and Inf.

Floats are measured in float64 over the elements that are finite in both, integers and booleans in integer arithmetic:
float64 does not distinguish 2**53 from 2**53 + 1. A complex number is two floats, its real and its imaginary part.
A metric that does not exist is None, so that the result is JSON.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import inf, isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from torchstone.numerics.dtypes import BOOL, INTEGER, dtype_name, kind_of

_SMALLEST, _LARGEST = 1e-100, 1e100  # between them squares, and sums of squares, neither overflow nor vanish
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes -> integers of the same bits
_WHOLE = (INTEGER, BOOL)
_WIDEST = 8  # bytes
_UNSIGNED_FLOAT = "float8_e8m0fnu"  # an exponent alone: its first bit is no sign


@dataclass(frozen=True)
class Errors:
    """How far two tensors of one shape are apart; None is a metric that does not exist for them."""

    pcc: float | None
    pcc_reason: str  # why there is no PCC; "" when there is
    cosine: float | None
    relative_l2: float | None
    max_abs: float | None
    max_rel: float | None  # over the elements that are not 0 in the expected tensor
    max_ulp: int | None  # representable numbers between two elements; None for two dtypes, or no floats
    allclose: bool
    equal: bool  # bit for bit and of one dtype; a NaN equals a NaN at its place
    compared: int  # elements that are finite in both
    nan: tuple[int, int] = (0, 0)  # in the expected tensor, in the actual one
    inf: tuple[int, int] = (0, 0)
    misplaced: int = 0  # elements that are NaN or infinite in one and not the same in the other
    worst_at: tuple[int, ...] | None = None  # the first misplaced element, or the one with the largest error
    ulp_histogram: dict[str, int] | None = None  # ULP "0", "1", "2-3", "4-7", ... -> elements; None as for max_ulp


class _Pair(NamedTuple):
    """Flat float64 values, both with the same elements."""

    expected: Tensor
    actual: Tensor


class _Special(NamedTuple):
    """The elements that are finite in both, and how many are not."""

    finite: _Pair
    nan: tuple[int, int] = (0, 0)
    inf: tuple[int, int] = (0, 0)
    misplaced: int = 0
    mask: Tensor | None = None  # which elements are finite; None: all


def measure(expected: Tensor, actual: Tensor, *, rtol: float, atol: float) -> Errors:
    """Compare two tensors; a ValueError where their shapes differ, since broadcasting would hide it."""
    if expected.shape != actual.shape:
        msg = f"cannot compare shape {list(actual.shape)} with {list(expected.shape)}; only equal shapes are measured"
        raise ValueError(msg)
    shape, expected, actual = expected.shape, as_dense(expected), as_dense(actual)
    same = _same_bits(expected, actual)
    if expected.is_complex() != actual.is_complex():
        expected, actual = expected.to(torch.complex128), actual.to(torch.complex128)
    left = as_numbers(expected)
    right = left if same else as_numbers(actual)
    special = _special(left, right)
    if same:
        return _errors_of_equal(special, expected)
    finite, size = special.finite, special.finite.expected.abs()
    error = _distance(expected, actual, finite)
    pcc, reason = correlation(*finite)
    if pcc is not None and not _magnitude(error):
        pcc = 1.0  # the values are equal: no rounding of the sums
    worst = _worst(left, right, error, misplaced=bool(special.misplaced))
    steps = _steps(expected, actual, special.mask)
    return Errors(
        pcc=pcc,
        pcc_reason=reason,
        cosine=_cosine(finite),
        relative_l2=_relative_l2(finite, error),
        max_abs=_largest(error),
        max_rel=_largest_relative(size, error),
        max_ulp=None if steps is None else int(steps.max()),
        allclose=special.misplaced == 0 and bool((error <= (rtol * size).add_(atol)).all()),
        equal=False,
        compared=finite.expected.numel(),
        nan=special.nan,
        inf=special.inf,
        misplaced=special.misplaced,
        worst_at=_index(worst, shape, parts=2 if expected.is_complex() else 1),
        ulp_histogram=None if steps is None else _histogram(steps),
    )


def as_dense(tensor: Tensor) -> Tensor:
    """The values of a tensor on the CPU: not sparse, quantized, conjugated by a flag, or tracked by autograd."""
    tensor = tensor.detach().cpu()
    if tensor.is_quantized:
        return tensor.dequantize()
    return tensor.to_dense().resolve_conj().resolve_neg()


def as_numbers(tensor: Tensor) -> Tensor:
    """A flat float64 tensor of a dense one; a complex number is two."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.to(torch.float64).flatten()


def identical(expected: Tensor, actual: Tensor) -> bool:
    """The same dtype, shape and bits; a NaN equals a NaN at its place, and 0 is not -0."""
    return _same_bits(as_dense(expected), as_dense(actual))


def correlation(expected: Tensor, actual: Tensor) -> tuple[float | None, str]:
    """Pearson's correlation of two flat float64 tensors of finite values, or why there is none."""
    reason = _why_no_correlation(expected, actual)
    if reason:
        return None, reason
    left, right = _centred(expected), _centred(actual)
    spread = left.norm() * right.norm()
    if not float(spread):
        return None, "differences too small for float64"
    return min(1.0, max(-1.0, float(left @ right / spread))), ""


def steps_apart(expected: Tensor, actual: Tensor, finite: Tensor | None = None) -> int | None:
    """The largest number of steps between representable numbers (ULP), over finite elements of one float dtype.

    `finite` is a flat mask of the elements that count; None means that all of them are finite.
    """
    apart = _steps(expected, actual, finite)
    return None if apart is None else int(apart.max())


def _steps(expected: Tensor, actual: Tensor, finite: Tensor | None) -> Tensor | None:
    """The steps between the elements of two float tensors of one dtype; None where there are none."""
    if expected.dtype != actual.dtype or not expected.is_floating_point():
        return None
    left, right = _in_order(expected), _in_order(actual)
    if finite is not None:
        left, right = left[finite], right[finite]
    if left.numel() == 0:
        return None
    if expected.element_size() < _WIDEST:
        return left.to(torch.int64).sub_(right).abs_()
    # Steps of float64 on two sides of 0 add up to more than int64 holds; on one side their difference is exact.
    one_side = (left < 0) == (right < 0)
    return torch.where(one_side, (left - right).abs().double(), left.double().abs() + right.double().abs())


def _histogram(steps: Tensor) -> dict[str, int]:
    """How many elements are how many steps apart, by powers of two."""
    _, exponents = torch.frexp(steps.double())  # 1 -> 1, 2 and 3 -> 2, 4 to 7 -> 3; 0 -> 0
    counts = torch.bincount(exponents.long()).tolist()
    ranges = ["0", "1", *(f"{2**power}-{2 ** (power + 1) - 1}" for power in range(1, max(1, len(counts) - 1)))]
    return {name: count for name, count in zip(ranges, counts, strict=False) if count}


def _in_order(tensor: Tensor) -> Tensor:
    """Integers in the order of the floats, neighbours one apart; both zeros are 0.

    The bits of floats above 0 are in order. Those below 0 are in the reverse order, after the sign: all bits but the
    sign are turned over, and 1 is added, for -0 would be -1.
    """
    flat = tensor.contiguous().flatten()
    bits = flat.view(_BITS[flat.element_size()])
    if dtype_name(tensor.dtype) == _UNSIGNED_FLOAT:
        return bits.to(torch.int64) & 0xFF
    last = 8 * flat.element_size() - 1
    negative = bits >> last  # -1 or 0
    return (bits ^ (negative & ((1 << last) - 1))).sub_(negative)


def _same_bits(expected: Tensor, actual: Tensor) -> bool:
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return False
    if expected.is_complex():
        expected, actual = torch.view_as_real(expected), torch.view_as_real(actual)
    left, right = (one.view(_BITS[one.element_size()]) for one in (expected, actual))
    if torch.equal(left, right):
        return True
    if not expected.is_floating_point():
        return False
    both_nan = expected.to(torch.float64).isnan() & actual.to(torch.float64).isnan()
    return bool(((left == right) | both_nan).all())


def _distance(expected: Tensor, actual: Tensor, finite: _Pair) -> Tensor:
    """The absolute errors; those of integers are 0 exactly where the integers are equal."""
    if all(kind_of(dtype_name(one.dtype)) in _WHOLE for one in (expected, actual)):
        return _integer_distance(expected, actual)
    return (finite.actual - finite.expected).abs()


def _integer_distance(expected: Tensor, actual: Tensor) -> Tensor:
    """The distances of integers of any width and sign, rounded once.

    A difference of 64-bit integers needs 66 bits. So each is split into 32 low bits and the rest, whose differences fit
    into int64, and put together in float64: the sum of two values that are not both 0 is never rounded to 0.
    """
    (high, low), (other_high, other_low) = _halves(expected), _halves(actual)
    return ((other_high - high).double() * 2.0**32 + (other_low - low).double()).abs()


def _halves(tensor: Tensor) -> tuple[Tensor, Tensor]:
    unsigned = tensor.dtype == torch.uint64
    bits = (tensor.contiguous().view(torch.int64) if unsigned else tensor.to(torch.int64)).flatten()
    high = bits >> 32
    return (high & 0xFFFFFFFF if unsigned else high), bits & 0xFFFFFFFF


def _errors_of_equal(special: _Special, expected: Tensor) -> Errors:
    """What is known without arithmetic when both are the same."""
    values = special.finite.expected
    has_values = bool(values.numel() and values.any())
    reason = _why_no_correlation(values, values)
    return Errors(
        pcc=None if reason else 1.0,
        pcc_reason=reason,
        cosine=1.0 if has_values else None,
        relative_l2=0.0 if has_values else None,
        max_abs=0.0 if values.numel() else None,
        max_rel=0.0 if has_values else None,
        max_ulp=0 if values.numel() and expected.is_floating_point() else None,
        ulp_histogram={"0": values.numel()} if values.numel() and expected.is_floating_point() else None,
        allclose=True,
        equal=True,
        compared=values.numel(),
        nan=special.nan,
        inf=special.inf,
    )


def _special(expected: Tensor, actual: Tensor) -> _Special:
    if isfinite(_magnitude(expected)) and isfinite(_magnitude(actual)):
        return _Special(_Pair(expected, actual))
    both = torch.isfinite(expected) & torch.isfinite(actual)
    same = (expected.isnan() & actual.isnan()) | (expected == actual)
    return _Special(
        finite=_Pair(expected[both], actual[both]),
        nan=(int(expected.isnan().sum()), int(actual.isnan().sum())),
        inf=(int(expected.isinf().sum()), int(actual.isinf().sum())),
        misplaced=int((~both & ~same).sum()),
        mask=both,
    )


def _worst(left: Tensor, right: Tensor, error: Tensor, *, misplaced: bool) -> int | None:
    """The place where two flat tensors are furthest apart; NaN or Inf in one of them is further than any number."""
    if not left.numel():
        return None
    if error.numel() == left.numel():
        return int(error.argmax())
    apart = torch.where(left == right, 0.0, (right - left).abs())  # equal infinities have no difference
    apart = torch.where(left.isnan() & right.isnan(), 0.0, apart)
    return int((apart.nan_to_num(nan=inf) if misplaced else apart).argmax())


def _index(place: int | None, shape: torch.Size, *, parts: int) -> tuple[int, ...] | None:
    """A place among the flat numbers as an index; a complex number is two places."""
    if place is None:
        return None
    return tuple(int(index) for index in torch.unravel_index(torch.tensor(place // parts), shape))


def _why_no_correlation(expected: Tensor, actual: Tensor) -> str:
    if expected.numel() == 0:
        return "no finite element in both"
    if expected.numel() == 1:
        return "a single element"
    pairs = (("expected", expected), ("actual", actual))
    constant = [name for name, one in pairs if bool(one[0] == one[-1]) and bool((one == one[0]).all())]
    return f"{' and '.join(constant)} constant" if constant else ""


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


def _cosine(finite: _Pair) -> float | None:
    if not (_magnitude(finite.expected) and _magnitude(finite.actual)):
        return None
    left, right = _scaled(finite.expected), _scaled(finite.actual)
    return min(1.0, max(-1.0, float(left @ right / (left.norm() * right.norm()))))


def _relative_l2(finite: _Pair, error: Tensor) -> float | None:
    """The length of the difference over the length of the expected tensor; None where that is 0."""
    size, largest = _magnitude(finite.expected), _magnitude(error)
    if not size:
        return None
    if not largest:
        return 0.0
    if all(_SMALLEST < one < _LARGEST for one in (size, largest)):
        return float(error.norm() / finite.expected.norm())
    difference = finite.actual / 2 - finite.expected / 2  # halves: the difference of two huge values stays finite
    largest = _magnitude(difference) or sys.float_info.min
    lengths = float((difference / largest).norm() / (finite.expected / size).norm())
    return min(2 * lengths * (largest / size), sys.float_info.max)


def _largest(error: Tensor) -> float | None:
    """The largest error; None where there is nothing to compare or it is beyond float64."""
    if error.numel() == 0:
        return None
    largest = float(error.max())
    return largest if largest != inf else None


def _largest_relative(size: Tensor, error: Tensor) -> float | None:
    """The largest error over the magnitude of its expected element, where that is not 0."""
    if not _magnitude(size):
        return None
    return _largest((error / size).masked_fill_(size == 0, 0.0))

"""The judge against its definition, computed without torch: Python integers, fractions and numpy in float64."""

from math import inf, isfinite, isnan, nan, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from torchstone.numerics.compare import measure
from torchstone.numerics.tolerance import ToleranceOptions
from torchstone.numerics.verdict import Status, compare

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
COMPLEX = ("complex64", "complex128")
specials = st.sampled_from([nan, inf, -inf, 0.0, -0.0])
values = st.floats(-100, 100) | specials


def integers(name: str) -> st.SearchStrategy[int]:
    low, high = INTEGERS[name]
    ends = st.sampled_from([low, low + 1, high - 1, high])
    return ends | st.integers(low, high) | st.integers(max(low, -3), 3) | near_the_limit_of_float64(low, high)


def near_the_limit_of_float64(low: int, high: int) -> st.SearchStrategy[int]:
    return st.sampled_from([one for one in (2**53, 2**53 + 1, 2**63 - 1, -(2**53) - 1) if low <= one <= high] or [low])


def pairs_of(one: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, Any]]]:
    return st.lists(st.tuples(one, other) | one.map(lambda value: (value, None)), max_size=8)


def split(pairs: list[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    """Two lists; None stands for the same value again, which chance would hardly give."""
    return [one for one, _ in pairs], [one if other is None else other for one, other in pairs]


def integer_tensor(numbers: list[int], name: str) -> Tensor:
    return torch.from_numpy(np.array(numbers, dtype=name))


@given(data=st.data(), dtypes=st.tuples(st.sampled_from(sorted(INTEGERS)), st.sampled_from(sorted(INTEGERS))))
def test_integers_agree_when_they_are_equal_in_integer_arithmetic(data: st.DataObject, dtypes: tuple[str, str]) -> None:
    one, other = dtypes
    low, high = (pick(INTEGERS[one][side], INTEGERS[other][side]) for side, pick in enumerate((max, min)))
    both = integers(one).filter(lambda number: low <= number <= high)
    expected, actual = split(data.draw(st.lists(st.tuples(integers(one), integers(other)), max_size=4)))
    again = data.draw(st.lists(both, max_size=4))
    expected, actual = expected + again, actual + again

    found = compare(integer_tensor(expected, one), integer_tensor(actual, other))

    assert found.passed == (expected == actual)
    assert found.errors is not None
    furthest = max((abs(x - y) for x, y in zip(expected, actual, strict=True)), default=None)
    assert found.errors.max_abs == (None if furthest is None else pytest.approx(furthest, rel=1e-15, abs=0))
    assert found.errors.equal == (expected == actual and one == other)


def test_a_difference_beyond_float64_is_seen() -> None:
    found = compare(torch.tensor([2**53, 5, 7]), torch.tensor([2**53 + 1, 5, 7]))

    assert (found.status, found.reason) == (Status.WRONG_VALUES, "integers and booleans must be equal")


@given(pairs_of(st.booleans(), st.booleans()))
def test_booleans_agree_when_they_are_equal(pairs: list[tuple[bool, bool]]) -> None:
    expected, actual = split(pairs)

    found = compare(torch.tensor(expected, dtype=torch.bool), torch.tensor(actual, dtype=torch.bool))

    assert found.passed == (expected == actual)


def definition(expected: list[float], actual: list[float], tolerance: Any) -> tuple[Status, bool]:
    """The status by the rule's own words, and whether it is too near to a limit to be held to it."""
    both = [(x, y) for x, y in zip(expected, actual, strict=True) if isfinite(x) and isfinite(y)]
    alike = sum((isnan(x) and isnan(y)) or x == y for x, y in zip(expected, actual, strict=True))
    special_alike = alike - sum(x == y for x, y in both)
    if len(expected) - len(both) != special_alike:
        return Status.WRONG_NON_FINITE, False
    left, right = [x for x, _ in both], [y for _, y in both]
    close = all(abs(x - y) <= tolerance.atol + tolerance.rtol * abs(x) for x, y in both)
    if len(both) < 2 or len(set(left)) == 1 or len(set(right)) == 1:
        return (Status.PASSED if close else Status.WRONG_VALUES), False
    if left == right:
        return Status.PASSED, False
    pcc = float(np.corrcoef(left, right)[0, 1])
    apart = sqrt(sum((x - y) ** 2 for x, y in both)) / sqrt(sum(x * x for x, _ in both))
    spread = min(float(np.std(side)) / (float(np.abs(side).max()) or 1.0) for side in (left, right))
    doubtful = abs(pcc - tolerance.pcc) < 1e-6 or abs(apart - tolerance.relative_l2) < 1e-6 or spread < 1e-6
    right_enough = pcc >= tolerance.pcc and (apart <= tolerance.relative_l2 or close)
    return (Status.PASSED if right_enough else Status.WRONG_VALUES), doubtful


@given(pairs=pairs_of(values, values), dtype=st.sampled_from(FLOATS), noise=st.sampled_from([0.0, 1e-7, 1e-3, 0.1]))
def test_floats_agree_by_the_rule_in_float64(pairs: list[tuple[float, float]], dtype: str, noise: float) -> None:
    first, second = split(pairs)
    expected = torch.tensor(first, dtype=torch.float64).to(getattr(torch, dtype))
    noisy = [x * (1 + noise * (-1) ** place) for place, x in enumerate(second)]
    actual = torch.tensor(noisy, dtype=torch.float64).to(getattr(torch, dtype))

    found = compare(expected, actual, ToleranceOptions({"pcc": 0.99}))
    status, doubtful = definition(expected.double().tolist(), actual.double().tolist(), found.tolerance)

    assume(not doubtful)
    assert found.status is status


@given(pairs=pairs_of(values, values), dtype=st.sampled_from(FLOATS))
def test_nan_and_infinities_are_counted_where_they_are(pairs: list[tuple[float, float]], dtype: str) -> None:
    expected, actual = (torch.tensor(side, dtype=torch.float64).to(getattr(torch, dtype)) for side in split(pairs))
    left, right = expected.double().tolist(), actual.double().tolist()

    found = measure(expected, actual, rtol=0, atol=0)

    assert found.nan == (sum(map(isnan, left)), sum(map(isnan, right)))
    assert found.inf == (sum(abs(x) == inf for x in left), sum(abs(y) == inf for y in right))
    assert found.compared == sum(isfinite(x) and isfinite(y) for x, y in zip(left, right, strict=True))
    finite = [abs(x - y) for x, y in zip(left, right, strict=True) if isfinite(x) and isfinite(y)]
    assert found.max_abs == (max(finite) if finite else None)


@given(pairs=pairs_of(values, values), other=pairs_of(values, values), dtype=st.sampled_from(COMPLEX))
def test_a_complex_number_is_judged_as_its_real_and_imaginary_parts(
    pairs: list[tuple[float, float]], other: list[tuple[float, float]], dtype: str
) -> None:
    length = min(len(pairs), len(other))
    (real, actual_real), (imaginary, actual_imaginary) = split(pairs[:length]), split(other[:length])
    kind = torch.float32 if dtype == "complex64" else torch.float64
    parts = [torch.tensor(side, dtype=kind) for side in (real, imaginary, actual_real, actual_imaginary)]
    expected, actual = torch.complex(parts[0], parts[1]), torch.complex(parts[2], parts[3])

    found = compare(expected, actual)
    as_parts = compare(torch.view_as_real(expected), torch.view_as_real(actual))

    assert found.status is as_parts.status
    assert found.errors is not None
    assert as_parts.errors is not None
    for name in ("pcc", "relative_l2", "max_abs", "nan", "inf", "misplaced", "equal", "allclose"):
        assert getattr(found.errors, name) == getattr(as_parts.errors, name), name


def test_a_conjugate_is_not_the_number_itself() -> None:
    numbers = torch.tensor([1 + 2j, 3 - 1j, -2 + 5j])

    assert compare(numbers, numbers.conj()).status is Status.WRONG_VALUES
    assert compare(numbers.conj(), numbers.conj().resolve_conj()).passed
    assert compare(numbers.conj().imag, -numbers.imag).passed  # negated by a flag


@given(
    shapes=st.tuples(*[st.lists(st.integers(0, 3), max_size=3)] * 2),
    dtypes=st.tuples(*[st.sampled_from(["float32", "bfloat16", "int64", "bool", "complex64", "float8_e5m2"])] * 2),
)
def test_other_shapes_and_other_kinds_of_numbers_are_named_and_never_broadcast(
    shapes: tuple[list[int], list[int]], dtypes: tuple[str, str]
) -> None:
    expected, actual = (torch.ones(shape).to(getattr(torch, name)) for shape, name in zip(shapes, dtypes, strict=True))
    kinds = ["float" if "float" in name else name for name in dtypes]

    found = compare(expected, actual)

    if shapes[0] != shapes[1]:
        assert (found.status, found.reason) == (Status.WRONG_SHAPE, f"shape {shapes[1]} instead of {shapes[0]}")
    elif kinds[0] != kinds[1]:
        assert (found.status, found.reason) == (Status.WRONG_DTYPE, f"{dtypes[1]} instead of {dtypes[0]}")
    else:
        assert found.passed
        assert (f"{dtypes[1]} instead of {dtypes[0]}" in found.reason) == (dtypes[0] != dtypes[1])


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX, *INTEGERS, "bool"])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 0, 2)])
def test_empty_tensors_of_one_shape_are_equal(dtype: str, shape: tuple[int, ...]) -> None:
    found = compare(torch.empty(shape, dtype=getattr(torch, dtype)), torch.empty(shape, dtype=getattr(torch, dtype)))

    assert found.passed
    assert found.errors is not None
    assert found.errors.equal
    assert (found.errors.pcc, found.errors.max_abs, found.errors.compared) == (None, None, 0)


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX, *INTEGERS, "bool"])
def test_a_tensor_without_dimensions_has_one_element(dtype: str) -> None:
    zero, one = (torch.tensor(number).to(getattr(torch, dtype)) for number in (0, 1))

    assert compare(one, one.clone()).passed
    assert compare(one, zero).status is Status.WRONG_VALUES
    assert compare(one, one.reshape(1)).status is Status.WRONG_SHAPE


@given(
    numbers=st.lists(st.floats(-100, 100, width=16) | specials, min_size=6, max_size=6),
    dtype=st.sampled_from([*FLOATS, "complex64", "int64"]),
    change=st.booleans(),
)
def test_the_layout_in_memory_does_not_matter(numbers: list[float], dtype: str, *, change: bool) -> None:
    numbers = [number if dtype != "int64" or isfinite(number) else 7.0 for number in numbers]
    plain = torch.tensor(numbers, dtype=torch.float64).reshape(2, 3).to(getattr(torch, dtype))
    other = plain.clone()
    if change:
        other[0, 0] = torch.tensor(99.0).to(other.dtype)
    strided = torch.cat([other, other], dim=1).to(torch.complex128 if other.is_complex() else torch.float64)
    strided = strided.to(other.dtype)[:, :3].t().contiguous().t()

    ours, theirs = compare(plain, other), compare(plain, strided)

    assert strided.stride() != other.stride()
    assert ours == theirs


@given(numbers=st.lists(values, min_size=1, max_size=8), dtype=st.sampled_from(["float8_e4m3fn", "float8_e5m2"]))
def test_the_steps_are_those_counted_in_the_sorted_list_of_all_numbers(numbers: list[float], dtype: str) -> None:
    kind = getattr(torch, dtype)
    every = torch.arange(256, dtype=torch.uint8).view(kind).double().tolist()
    order = sorted({number + 0.0 for number in every if isfinite(number)})
    expected, actual = (torch.tensor(side, dtype=torch.float64).to(kind) for side in (numbers, numbers[::-1]))

    found = measure(expected, actual, rtol=0, atol=0).max_ulp

    apart = [
        abs(order.index(x) - order.index(y))
        for x, y in zip(expected.double().tolist(), actual.double().tolist(), strict=True)
        if isfinite(x) and isfinite(y)
    ]
    assert found == (max(apart) if apart else None)

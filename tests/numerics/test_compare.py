from math import inf, nan

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from torchstone.numerics.compare import Errors, as_dense, as_numbers, correlation, identical, measure, steps_apart

numbers = st.floats(-1e3, 1e3, allow_nan=False, width=32)
pairs = st.integers(2, 40).flatmap(
    lambda size: st.tuples(
        st.lists(numbers, min_size=size, max_size=size), st.lists(numbers, min_size=size, max_size=size)
    )
)


def measured(golden: Tensor, candidate: Tensor, *, rtol: float = 0, atol: float = 0) -> Errors:
    return measure(golden, candidate, rtol=rtol, atol=atol)


def spread_out(values: list[float]) -> bool:
    return float(np.std(values)) > 1e-6 * (1 + float(np.abs(values).max()))


@given(pair=pairs)
def test_pcc_is_that_of_numpy(pair: tuple[list[float], list[float]]) -> None:
    golden, candidate = pair
    assume(spread_out(golden) and spread_out(candidate))

    found, reason = correlation(torch.tensor(golden, dtype=torch.float64), torch.tensor(candidate, dtype=torch.float64))

    assert reason == ""
    assert found == pytest.approx(np.corrcoef(golden, candidate)[0, 1], abs=1e-7)


@given(pair=pairs, scale=st.sampled_from([1e-150, 1e-30, 1e30, 1e150]))
def test_pcc_does_not_depend_on_the_scale_however_huge(pair: tuple[list[float], list[float]], scale: float) -> None:
    golden, candidate = (torch.tensor(values, dtype=torch.float64) for values in pair)
    assume(spread_out(pair[0]) and spread_out(pair[1]))

    plain, _ = correlation(golden, candidate)
    scaled, _ = correlation(golden * scale, candidate * scale)

    assert scaled == pytest.approx(plain, abs=1e-7)


@given(pair=pairs)
def test_pcc_lies_between_minus_one_and_one_and_does_not_care_who_is_golden(
    pair: tuple[list[float], list[float]],
) -> None:
    first, second = (torch.tensor(values) for values in pair)

    one, other = measured(first, second).pcc, measured(second, first).pcc

    assert (one is None) == (other is None)
    assert one is None or (-1 <= one <= 1 and one == pytest.approx(other, abs=1e-9))


@pytest.mark.parametrize(
    ("golden", "candidate", "reason"),
    [
        ([], [], "no finite element in both"),
        ([3.0], [4.0], "a single element"),
        ([0.1, 0.1, 0.1], [0.1, 0.2, 0.3], "expected constant"),
        ([0.1, 0.2, 0.1], [7.0, 7.0, 7.0], "actual constant"),
        ([0.1, 0.1], [0.1, 0.1], "expected and actual constant"),
        ([nan, 1.0], [2.0, nan], "no finite element in both"),
    ],
)
def test_where_there_is_no_pcc_the_reason_is_told(golden: list[float], candidate: list[float], reason: str) -> None:
    found = measured(torch.tensor(golden), torch.tensor(candidate))

    assert found.pcc is None
    assert found.pcc_reason == reason


def test_equal_tensors_have_the_numbers_of_a_perfect_match() -> None:
    found = measured(torch.tensor([1.0, -2.0, 3.0]), torch.tensor([1.0, -2.0, 3.0]))

    assert (found.pcc, found.cosine, found.max_abs, found.max_rel, found.relative_l2) == (1, 1, 0, 0, 0)
    assert found.equal
    assert found.allclose


def test_errors_are_those_done_by_hand() -> None:
    found = measured(torch.tensor([3.0, 4.0, 0.0]), torch.tensor([3.0, 5.0, 1.0]), rtol=0.1, atol=0)

    assert found.max_abs == 1
    assert found.max_rel == pytest.approx(1 / 4)  # an element that is 0 has no relative error
    assert found.relative_l2 == pytest.approx(2**0.5 / 5)
    assert found.cosine == pytest.approx((9 + 20) / (5 * 35**0.5))
    assert not found.allclose


def test_a_scaled_tensor_has_a_perfect_pcc_and_a_large_l2_error() -> None:
    golden = torch.linspace(-1, 1, 50)

    found = measured(golden, 2 * golden)

    assert found.pcc == pytest.approx(1)
    assert found.relative_l2 == pytest.approx(1)


def test_nan_and_inf_at_the_same_places_leave_the_rest_comparable() -> None:
    golden = torch.tensor([nan, inf, -inf, 1.0, 2.0, 4.0])

    found = measured(golden, golden + torch.tensor([0, 0, 0, 0.5, 0, 0]))

    assert found.misplaced == 0
    assert (found.nan, found.inf, found.compared) == ((1, 1), (2, 2), 3)
    assert found.max_abs == 0.5


@pytest.mark.parametrize("wrong", [nan, -inf, 5.0])
def test_a_wrong_infinity_is_counted(wrong: float) -> None:
    found = measured(torch.tensor([inf, 1.0, 2.0]), torch.tensor([wrong, 1.0, 2.0]), rtol=1, atol=1)

    assert found.misplaced == 1
    assert not found.allclose


def test_huge_values_do_not_overflow() -> None:
    golden = torch.tensor([1e308, -1e308, 5e307], dtype=torch.float64)

    found = measured(golden, -golden)

    assert found.pcc == pytest.approx(-1)
    assert found.relative_l2 == pytest.approx(2)
    assert found.max_abs is None  # 2e308 is beyond float64


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64])
def test_every_element_type_is_measured_in_float64(dtype: torch.dtype) -> None:
    golden = torch.tensor([0, 1, 1, 0]).to(dtype)

    found = measured(golden, golden.clone())

    assert found.pcc == 1
    assert found.equal


def test_bfloat16_loses_nothing_on_the_way() -> None:
    golden = torch.tensor([256.0, 258.0, 260.0], dtype=torch.bfloat16)

    assert measured(golden, golden + 2).max_abs == 2


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (torch.tensor([nan, 1.0]), torch.tensor([nan, 1.0]), True),
        (torch.tensor([nan, 1.0]), torch.tensor([1.0, nan]), False),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), False),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), False),
        (torch.tensor([1.5]).to(torch.float8_e4m3fn), torch.tensor([1.5]).to(torch.float8_e4m3fn), True),
    ],
)
def test_identical_means_bit_for_bit_with_nans_at_their_places(first: Tensor, second: Tensor, *, same: bool) -> None:
    assert identical(first, second) is same


def test_whole_numbers_beyond_float64_are_told_apart() -> None:
    found = measured(torch.tensor([2**60, 3]), torch.tensor([2**60 + 1, 3]))

    assert found.max_abs == 1
    assert not found.allclose


def test_minus_zero_is_no_zero_bit_for_bit_and_equal_in_value() -> None:
    zero = torch.zeros(2)

    assert not identical(zero, -zero)
    assert measured(zero, -zero).max_abs == 0


@pytest.mark.parametrize(
    ("golden", "candidate", "place"),
    [
        (torch.zeros(2, 3), torch.tensor([[0, 1, 0], [0, -4.0, 0]]), (1, 1)),
        (torch.zeros(2, 2), torch.tensor([[0, 9], [nan, 0]]), (1, 0)),
        (torch.tensor([inf, nan, 1.0]), torch.tensor([inf, nan, 2.0]), (2,)),
        (torch.zeros(3, dtype=torch.complex64), torch.tensor([0, 0, 1j]), (2,)),
        (torch.zeros(()), torch.ones(()), ()),
        (torch.zeros(2), torch.zeros(2), None),
    ],
)
def test_the_worst_element_is_found(golden: Tensor, candidate: Tensor, place: tuple[int, ...] | None) -> None:
    assert measured(golden, candidate.to(golden.dtype)).worst_at == place


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2])
def test_steps_count_the_numbers_between(dtype: torch.dtype) -> None:
    one = torch.tensor([1.0]).to(dtype)
    next_one = torch.tensor([1.0 + torch.finfo(dtype).eps], dtype=torch.float64).to(dtype)
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    tiny = torch.tensor([smallest], dtype=torch.float64).to(dtype)

    assert steps_apart(one, next_one) == 1
    assert steps_apart(one, one) == 0
    if float(tiny):
        assert steps_apart(tiny, (-tiny.to(torch.float64)).to(dtype)) == 2


def test_zero_and_minus_zero_are_one_number() -> None:
    assert steps_apart(torch.tensor([0.0]), torch.tensor([-0.0])) == 0


def test_the_ends_of_the_numbers_are_far_apart_and_do_not_overflow() -> None:
    largest = torch.tensor([torch.finfo(torch.float64).max], dtype=torch.float64)

    assert (steps_apart(largest, -largest) or 0) > 1 << 62


@pytest.mark.parametrize(
    ("wanted", "actual"),
    [
        (torch.ones(1), torch.ones(1).half()),
        (torch.ones(1).long(), torch.ones(1).long()),
        (torch.tensor([nan]), torch.tensor([nan])),
    ],
)
def test_steps_exist_only_between_finite_floats_of_one_type(wanted: torch.Tensor, actual: torch.Tensor) -> None:
    assert measure(wanted, actual, rtol=0, atol=0).max_ulp is None


def test_a_complex_number_is_two_and_a_sparse_tensor_is_dense() -> None:
    assert as_numbers(as_dense(torch.tensor([1 + 2j]).conj())).tolist() == [1.0, -2.0]
    assert as_numbers(as_dense(torch.eye(2).to_sparse())).tolist() == [1.0, 0.0, 0.0, 1.0]


def test_the_histogram_counts_steps_by_powers_of_two() -> None:
    expected = torch.ones(8)
    steps = torch.tensor([0, 0, 0, 1, 2, 3, 4, 9], dtype=torch.int32)
    actual = (expected.view(torch.int32) + steps).view(torch.float32)

    assert measure(expected, actual, rtol=0.0, atol=0.0).ulp_histogram == {
        "0": 3,
        "1": 1,
        "2-3": 2,
        "4-7": 1,
        "8-15": 1,
    }
    assert measure(expected, expected, rtol=0.0, atol=0.0).ulp_histogram == {"0": 8}
    assert measure(expected, expected.double(), rtol=0.0, atol=0.0).ulp_histogram is None
    wide = torch.ones(3, dtype=torch.float64)
    assert measure(wide, -wide, rtol=0.0, atol=0.0).ulp_histogram is not None

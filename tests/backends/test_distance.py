import json
from math import inf, nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchstone.backends.distance import as_numbers, dtype_name, errors_between, steps_apart
from torchstone.reference.measuring import measure

floats = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, nan, inf, -inf])
pairs = st.lists(st.tuples(floats, floats | st.just(1.0)), max_size=8)


@given(pairs)
def test_the_numbers_are_those_of_golden_data(values: list[tuple[float, float]]) -> None:
    wanted, actual = (torch.tensor([pair[side] for pair in values]) for side in (0, 1))

    ours = errors_between(wanted, actual, rtol=1e-6, atol=1e-5)
    theirs = measure(wanted, actual, rtol=1e-6, atol=1e-5)

    for name in ("pcc", "cosine", "relative_l2", "max_abs", "max_rel"):
        number = getattr(theirs, name)
        assert ours[name] == (None if number is None else pytest.approx(number, rel=1e-12)), name
    for name in ("allclose", "equal", "compared", "misplaced"):
        assert ours[name] == getattr(theirs, name), name
    assert (tuple(ours["nan"]), tuple(ours["inf"])) == (theirs.nan, theirs.inf)


@given(pairs)
def test_the_numbers_are_json(values: list[tuple[float, float]]) -> None:
    wanted, actual = (torch.tensor([pair[side] for pair in values]) for side in (0, 1))

    json.dumps(errors_between(wanted, actual, rtol=0, atol=0), allow_nan=False)


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
    assert steps_apart(wanted, actual) is None


def test_a_complex_number_is_two_and_a_sparse_tensor_is_dense() -> None:
    assert as_numbers(torch.tensor([1 + 2j]).conj()).tolist() == [1.0, -2.0]
    assert as_numbers(torch.eye(2).to_sparse()).tolist() == [1.0, 0.0, 0.0, 1.0]
    assert dtype_name(torch.ones(1)) == "float32"

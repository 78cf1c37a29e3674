from collections.abc import Callable
from functools import partial
from math import inf, nan

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from torchstone.numerics.standalone import difference, source_of_difference
from torchstone.numerics.tolerance import ToleranceOptions, limits_by_dtype, read_options, tolerance_for
from torchstone.numerics.verdict import compare

A = torch.linspace(-2, 3, 12)
numbers = st.floats(-100, 100, width=32) | st.sampled_from([0.0, -0.0, nan, inf, -inf])
pairs = st.lists(st.tuples(numbers, numbers) | numbers.map(lambda number: (number, number)), max_size=6)


def in_a_script() -> Callable[..., str]:
    scope: dict[str, Callable[..., str]] = {}
    exec("import torch\n\n\n" + source_of_difference(), scope)  # noqa: S102 - as a script runs it
    return scope["difference"]


def agrees(expected: Tensor, actual: Tensor) -> bool:
    name = str(expected.dtype).removeprefix("torch.")
    limits = limits_by_dtype()
    return not in_a_script()(expected, actual, **limits.get(name, limits["float"]))


@given(pairs=pairs, dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float8_e5m2]))
def test_a_script_decides_as_the_judge_does(pairs: list[tuple[float, float]], dtype: torch.dtype) -> None:
    expected, actual = (torch.tensor([pair[side] for pair in pairs]).to(dtype) for side in (0, 1))

    found = compare(expected, actual, ToleranceOptions({"pcc": 0.99}))

    pcc = None if found.errors is None else found.errors.pcc
    assume(pcc is None or abs(pcc - 0.99) > 1e-6)
    assert agrees(expected, actual) is found.passed


@pytest.mark.parametrize(
    ("expected", "actual", "said"),
    [
        (A, A.clone(), ""),
        (A, A * 2, "PCC 1.000000, relative L2 error 1"),
        (A, A.reshape(3, 4), "torch.float32 [3, 4] instead of torch.float32 [12]"),
        (A, A.long(), "torch.int64 [12] instead of torch.float32 [12]"),
        (torch.ones(1), torch.zeros(1), "no PCC, relative L2 error 1"),
        (torch.tensor([2**53]), torch.tensor([2**53 + 1]), "1 elements differ"),
        (torch.tensor([nan, 1.0]), torch.tensor([1.0, nan]), "2 elements are NaN or infinite in one of the two"),
        (torch.complex(A, A), torch.complex(A, -A), "PCC"),
        (torch.empty(0), torch.empty(0), ""),
    ],
)
def test_it_says_what_is_wrong(expected: Tensor, actual: Tensor, said: str) -> None:
    limits = tolerance_for("float32", "float32").limits()

    found = difference(expected, actual, **limits)

    assert found.startswith(said)
    assert bool(found) == bool(said)
    assert (found == "") is compare(expected, actual, ToleranceOptions({"pcc": 0.99})).passed


def test_without_a_pcc_the_relative_error_decides() -> None:
    decide = partial(difference, pcc=None, relative_l2=0.01, rtol=0.0, atol=0.0)

    assert not decide(A, A * 1.005)
    assert decide(A, A * 1.02) == "relative L2 error 0.02, more than 0.01"
    assert not decide(torch.ones(8), torch.ones(8) * 1.005)


def test_the_limits_of_a_script_are_those_of_the_judge() -> None:
    options = read_options({"pcc": 0.9, "by_dtype": {"bfloat16": {"pcc": 0.8}}})

    limits = limits_by_dtype(options)

    assert limits["bfloat16"] == tolerance_for("bfloat16", "bfloat16", options).limits()
    assert (
        limits["float"] == tolerance_for("float8_e4m3fnuz", "float8_e4m3fnuz", ToleranceOptions({"pcc": 0.9})).limits()
    )

import json
from math import inf, nan
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.nets import Cache, Output
from torchstone.numerics.verdict import Status, judge
from torchstone.record.reference import GoldenTensor, Role
from torchstone.record.reference import Status as RecordedStatus
from torchstone.reference.judge import Basis
from torchstone.reference.judge import judge as judge_golden

A = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
floats = st.floats(-100, 100, width=32) | st.sampled_from([nan, inf])


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (A, A.clone()),
        (A, A * (1 + 1e-6)),
        (Output(A, (A,), cache=Cache(A, 5)), Output(A, (A,), cache=Cache(A + 0, 5))),
        ({"a": A, "n": 3}, {"a": A, "n": 3}),
        (A.t(), A.t().contiguous()),  # strides are told, not judged
        (torch.tensor([nan, 1.0, 2.0]), torch.tensor([nan, 1.0, 2.0])),
        (A, A.bfloat16()),  # another float type is told, not judged
        (torch.zeros(3), torch.zeros(3)),
        (torch.empty(0), torch.empty(0)),
        ([A, nan, None], [A, nan, None]),
    ],
)
def test_what_agrees_passes(expected: Any, actual: Any) -> None:
    verdict = judge(expected, actual)

    assert verdict["passed"], verdict["reason"]


@pytest.mark.parametrize(
    ("expected", "actual", "status", "said"),
    [
        (A, A * 2, "wrong values", "relative error 1, "),
        (A, A.flip(0), "wrong values", "times what float32 (assumed"),
        (A, A.t(), "wrong values", "times what float32"),
        (A, torch.full_like(A, nan), "wrong NaN or Inf", "16 elements"),
        (A, A[:2], "wrong shape", "shape [2, 4] instead of [4, 4]"),
        (A, A.long(), "wrong dtype", "int64 instead of float32"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "wrong values", "integers and booleans must be equal"),
        (torch.zeros(3), torch.ones(3), "wrong values", "times what float32"),
        ([A, A], [A], "missing", "1: the backend does not give"),
        ([A], [A, A], "not expected", "1: eager does not give"),
        ({"a": A}, {"a": 3}, "wrong type", "int instead of Tensor"),
        ({"a": A, "n": 3}, {"a": A, "n": 4}, "wrong values", "n: 4, not 3"),
        ([A, None], [A, 0], "wrong values", "0, not None"),
    ],
)
def test_what_does_not_agree_fails_with_its_reason(expected: Any, actual: Any, status: str, said: str) -> None:
    verdict = judge(expected, actual)

    assert not verdict["passed"]
    assert [leaf["status"] for leaf in verdict["leaves"] if not leaf["passed"]] == [status]
    assert said in verdict["reason"]


@given(st.lists(st.tuples(floats, floats), min_size=1, max_size=6))
def test_the_verdict_is_that_of_golden_data(values: list[tuple[float, float]]) -> None:
    expected, actual = (torch.tensor([pair[side] for pair in values]) for side in (0, 1))
    about = GoldenTensor(name="x", role=Role.OUTPUT, shape=tuple(expected.shape), dtype="float32")

    ours = judge(expected, actual, {"pcc": 0.99})["leaves"][0]
    theirs = judge_golden(about, expected, actual, Basis(pcc=0.99))

    assert ours["status"] == theirs.status.value


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_sparse_quantized_and_tracked_tensors_are_compared_by_their_values() -> None:
    quantized = torch.quantize_per_tensor(A, 0.1, 0, torch.qint8)
    other = torch.quantize_per_tensor(A.flip(0), 0.1, 0, torch.qint8)

    assert judge(torch.eye(3).to_sparse(), torch.eye(3))["passed"]
    assert judge(quantized, quantized.clone())["passed"]
    assert not judge(quantized, other)["passed"]
    assert judge(A.clone().requires_grad_(), A)["passed"]


def test_every_status_is_a_known_word() -> None:
    known = {status.value for status in RecordedStatus}

    assert {status.value for status in Status} - known == {
        "wrong type",
        "not expected",
    }  # golden data has tensors alone


def test_the_worst_numbers_of_all_outputs_are_told_with_the_tolerance() -> None:
    verdict = judge([A, A], [A, A + 0.1 * A.flip(0)], {"pcc": 0.99})

    assert verdict["pcc"] == verdict["leaves"][1]["pcc"] < verdict["leaves"][0]["pcc"] == 1.0
    assert verdict["max_abs"] > 0
    assert verdict["leaves"][1]["tolerance"]["pcc"] == 0.99


def test_a_wider_tolerance_lets_more_pass() -> None:
    noisy = A + 0.3 * A.flip(0)

    assert not judge(A, noisy)["passed"]
    assert judge(A, noisy, {"pcc": 0.8})["passed"]
    assert judge(A, noisy, {"by_dtype": {"float32": {"pcc": 0.8}}})["passed"]


def test_other_strides_and_types_are_told() -> None:
    leaf = judge(A.t(), A.t().contiguous().half())["leaves"][0]

    assert (leaf["same_stride"], leaf["same_dtype"]) == (False, False)
    assert (leaf["stride"], leaf["actual_stride"], leaf["actual_dtype"]) == ([1, 4], [4, 1], "float16")
    assert leaf["reason"] == "float16 instead of float32"


def test_outputs_without_tensors_are_told() -> None:
    verdict = judge(None, None)

    assert verdict["passed"]
    assert verdict["reason"] == "there is no tensor to compare"


def test_a_verdict_is_json() -> None:
    json.dumps(judge([A, torch.tensor([nan, inf])], [A * 2, torch.tensor([1.0, 2.0])]), allow_nan=False)

from math import nan

import pytest
import torch
from torch import Tensor

from torchstone.record.reference import GoldenTensor, Role, Status, TensorVerdict
from torchstone.reference.judge import Basis, judge

GOLDEN = torch.linspace(-1, 1, 20)


def verdict(golden: Tensor | None, candidate: Tensor | None, *, role: Role = Role.OUTPUT) -> TensorVerdict:
    like = golden if golden is not None else GOLDEN
    dtype = str(like.dtype).removeprefix("torch.")
    about = GoldenTensor(name="outputs", role=role, shape=tuple(like.shape), dtype=dtype, reason="sparse")
    return judge(about, golden, candidate, Basis(pcc=0.99))


@pytest.mark.parametrize(
    ("candidate", "status"),
    [
        (GOLDEN, Status.PASSED),
        (GOLDEN + 1e-3 * GOLDEN.flip(0), Status.PASSED),
        (GOLDEN.to(torch.bfloat16), Status.PASSED),
        (GOLDEN.flip(0), Status.WRONG_VALUES),
        (2 * GOLDEN, Status.WRONG_VALUES),  # PCC is 1
        (GOLDEN + 5, Status.WRONG_VALUES),  # PCC is 1
        (torch.zeros(20), Status.WRONG_VALUES),
        (GOLDEN.reshape(4, 5), Status.WRONG_SHAPE),
        (torch.where(GOLDEN > 0.9, nan, GOLDEN), Status.WRONG_NON_FINITE),
        (GOLDEN.to(torch.int64), Status.WRONG_DTYPE),
        (None, Status.MISSING),
    ],
)
def test_each_way_to_be_right_or_wrong_has_its_status(candidate: Tensor | None, status: Status) -> None:
    assert verdict(GOLDEN, candidate).status is status


@pytest.mark.parametrize("role", [Role.INPUT, Role.MODULE_INPUT, Role.MODULE_OUTPUT])
def test_only_outputs_must_be_given(role: Role) -> None:
    assert verdict(GOLDEN, None, role=role).status is Status.NOT_GIVEN


def test_a_golden_tensor_without_values_is_not_judged() -> None:
    found = verdict(None, GOLDEN)

    assert found.status is Status.NOT_KEPT
    assert found.detail == "sparse"


def test_a_constant_tensor_is_judged_by_allclose() -> None:
    ones = torch.ones(8)

    assert verdict(ones, ones + 1e-7).status is Status.PASSED
    assert verdict(ones, ones + 1e-2).status is Status.WRONG_VALUES
    assert "constant" in verdict(ones, ones + 1e-2).detail


def test_whole_numbers_pass_only_when_equal() -> None:
    ids = torch.arange(100)
    nearly = ids.clone()
    nearly[7] += 1

    assert verdict(ids, ids.to(torch.int32)).status is Status.PASSED
    assert verdict(ids, nearly).status is Status.WRONG_VALUES


def test_an_empty_tensor_of_the_right_shape_passes() -> None:
    assert verdict(torch.empty(0, 3), torch.empty(0, 3)).status is Status.PASSED


def test_the_tolerance_travels_with_the_verdict() -> None:
    found = verdict(GOLDEN, GOLDEN.to(torch.bfloat16))

    assert found.tolerance is not None
    assert (found.tolerance.pcc, found.tolerance.rtol) == (0.99, 1.6e-2)
    assert found.detail == "bfloat16 instead of float32"


def test_whole_numbers_beyond_float64_must_be_equal_too() -> None:
    assert verdict(torch.tensor([2**60, 3]), torch.tensor([2**60 + 1, 3])).status is Status.WRONG_VALUES


def test_narrower_whole_numbers_are_told_not_failed() -> None:
    found = verdict(torch.tensor([1, 2]), torch.tensor([1, 2], dtype=torch.int32))

    assert (found.status, found.detail) == (Status.PASSED, "int32 instead of int64")


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (GOLDEN.reshape(4, 5), "shape [4, 5] instead of [20]; matches after: reshape to [20]"),
        (3 * GOLDEN, "it is about 3 times the golden tensor"),
        (GOLDEN.flip(0), "PCC -1 is below 0.99; worst at [0]"),
        (torch.where(GOLDEN > 0.9, nan, GOLDEN), "NaN or infinite in one of the two, first at [19]"),
    ],
)
def test_a_wrong_verdict_tells_what_is_wrong_and_where(candidate: Tensor, words: str) -> None:
    assert words in verdict(GOLDEN, candidate).detail

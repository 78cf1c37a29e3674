import pytest
import torch
from torch import Tensor

from torchstone.capture.op_log import facts_of
from torchstone.numerics.value_facts import LARGEST_KEPT_WHOLE
from torchstone.record.config import TensorFacts


def seen(tensor: Tensor) -> TensorFacts:
    facts = facts_of(tensor, 0)
    assert facts is not None
    return facts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn])
def test_floats_have_a_range_and_a_share_of_zeros(dtype: torch.dtype) -> None:
    facts = seen(torch.tensor([[-2.0, 0.0], [0.0, 4.0]]).to(dtype))

    assert (facts.lowest, facts.highest) == (-2.0, 4.0)
    assert (facts.fewest_zeros, facts.most_zeros) == (0.5, 0.5)
    assert (facts.has_nan, facts.has_inf) == (False, False)
    assert facts.values is None


def test_the_range_is_that_of_the_finite_values() -> None:
    facts = seen(torch.tensor([float("-inf"), 1.0, float("nan"), 3.0]))

    assert (facts.lowest, facts.highest, facts.has_nan, facts.has_inf) == (1.0, 3.0, True, True)


def test_a_tensor_without_finite_values_has_no_range() -> None:
    facts = seen(torch.full((3,), float("-inf")))

    assert (facts.lowest, facts.highest, facts.has_nan, facts.has_inf) == (None, None, False, True)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8, torch.uint16, torch.uint32])
def test_small_integer_tensors_are_kept_whole(dtype: torch.dtype) -> None:
    facts = seen(torch.tensor([[3, 0], [7, 1]]).to(dtype))

    assert (facts.lowest, facts.highest) == (0, 7)
    assert facts.values == (3, 0, 7, 1)


def test_masks_are_kept_whole_as_booleans() -> None:
    assert seen(torch.tensor([True, False])).values == (True, False)


def test_large_integer_tensors_are_told_by_their_bounds_alone() -> None:
    facts = seen(torch.arange(LARGEST_KEPT_WHOLE + 1))

    assert (facts.lowest, facts.highest, facts.values) == (0, LARGEST_KEPT_WHOLE, None)


def test_an_empty_tensor_has_facts_without_a_range() -> None:
    assert seen(torch.empty(0, 4)) == TensorFacts(tensor=0)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(2, device="meta"),
        torch.eye(2).to_sparse(),
        torch.ones(2, dtype=torch.complex64),
    ],
    ids=["meta", "sparse", "complex"],
)
def test_values_that_cannot_be_seen_are_unknown(tensor: Tensor) -> None:
    assert facts_of(tensor, 0) is None

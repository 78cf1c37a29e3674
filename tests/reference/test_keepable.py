import pytest
import torch
from torch import nn

from torchstone.reference.golden_files import why_not_plain, why_not_saved


def test_plain_tensors_and_parameters_can_be_kept() -> None:
    assert why_not_saved(torch.ones(2)) == ""
    assert why_not_saved(nn.Parameter(torch.ones(2, dtype=torch.bfloat16))) == ""


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.eye(2).to_sparse(), "its layout is sparse_coo"),
        (nn.UninitializedParameter(), "a UninitializedParameter is not a plain tensor"),
    ],
)
def test_what_is_more_than_numbers_says_why(tensor: torch.Tensor, words: str) -> None:
    assert why_not_plain(tensor) == why_not_saved(tensor) == words


def test_an_element_type_that_no_file_knows_is_plain_and_cannot_be_kept() -> None:
    tensor = torch.ones(1, dtype=torch.complex128)

    assert why_not_plain(tensor) == ""
    assert why_not_saved(tensor) == "safetensors has no complex128"

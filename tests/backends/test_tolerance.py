import pytest
import torch

from torchstone.backends.tolerance import tolerance_for
from torchstone.reference.tolerances import tolerance_for as tolerance_of_golden_data

PAIRS = [
    (torch.float32, torch.float32),
    (torch.float32, torch.bfloat16),
    (torch.float64, torch.float32),
    (torch.int64, torch.int64),
    (torch.bool, torch.bool),
    (torch.float8_e4m3fn, torch.float8_e4m3fn),
    (torch.complex64, torch.complex64),
]


@pytest.mark.parametrize(("wanted", "actual"), PAIRS)
@pytest.mark.parametrize("pcc", [0.9, 0.99, 1.0])
def test_it_is_the_tolerance_that_golden_data_is_judged_by(
    wanted: torch.dtype, actual: torch.dtype, pcc: float
) -> None:
    ours, theirs = tolerance_for(wanted, actual, {"pcc": pcc}), tolerance_of_golden_data(wanted, actual, pcc=pcc)

    assert ours == {name: getattr(theirs, name) for name in ours}


def test_what_is_asked_for_counts_and_the_element_type_counts_most() -> None:
    asked = {"pcc": 0.9, "rtol": 0.5, "by_dtype": {"bfloat16": {"pcc": 0.8}}}

    assert tolerance_for(torch.float32, torch.float32, asked)["pcc"] == 0.9
    assert tolerance_for(torch.bfloat16, torch.bfloat16, asked)["pcc"] == 0.8
    assert tolerance_for(torch.bfloat16, torch.bfloat16, asked)["rtol"] == 0.5

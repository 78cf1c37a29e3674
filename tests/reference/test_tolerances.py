import pytest
import torch

from torchstone.reference.tolerances import tolerance_for


def test_the_coarser_element_type_decides() -> None:
    mixed = tolerance_for(torch.float32, torch.bfloat16)

    assert mixed.rtol == tolerance_for(torch.bfloat16, torch.bfloat16).rtol
    assert mixed.rtol > tolerance_for(torch.float32, torch.float32).rtol


def test_float32_is_judged_as_torch_testing_does() -> None:
    tolerance = tolerance_for(torch.float32, torch.float32)

    assert (tolerance.rtol, tolerance.atol) == (1.3e-6, 1e-5)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_whole_numbers_must_be_equal(dtype: torch.dtype) -> None:
    tolerance = tolerance_for(dtype, torch.float32)

    assert tolerance.exact
    assert (tolerance.rtol, tolerance.atol) == (0, 0)


def test_a_stricter_pcc_allows_less_l2_error() -> None:
    loose, strict = (tolerance_for(torch.float32, torch.float32, pcc=pcc) for pcc in (0.9, 0.999))

    assert strict.relative_l2 < loose.relative_l2


def test_noise_that_just_passes_the_pcc_passes_the_l2_error_too() -> None:
    torch.manual_seed(0)
    golden = torch.randn(100_000)
    noisy = golden + 0.142 * torch.randn(100_000)

    tolerance = tolerance_for(golden.dtype, golden.dtype, pcc=0.99)

    assert torch.corrcoef(torch.stack([golden, noisy]))[0, 1] == pytest.approx(0.99, abs=1e-3)
    assert float((noisy - golden).norm() / golden.norm()) < tolerance.relative_l2

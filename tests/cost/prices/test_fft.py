import torch

from tests.cost.calls import flops_of


def test_a_complex_transform_costs_five_n_log_n() -> None:
    assert flops_of(torch.fft.fft, torch.ones(3, 16, dtype=torch.complex64)) == 3 * 5 * 16 * 4


def test_a_real_transform_costs_half() -> None:
    assert flops_of(torch.fft.rfft, torch.ones(3, 16)) == 3 * 5 * 16 * 4 // 2
    assert flops_of(torch.fft.irfft, torch.ones(3, 9, dtype=torch.complex64)) == 3 * 5 * 16 * 4 // 2


def test_a_transform_of_one_element_is_free() -> None:
    assert flops_of(torch.fft.fft, torch.ones(3, 1, dtype=torch.complex64)) == 0

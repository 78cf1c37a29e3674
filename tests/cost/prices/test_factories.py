import torch

from tests.cost.calls import cost_of

X = torch.ones(4, 8)


def test_a_filled_tensor_is_written_and_nothing_is_read() -> None:
    for function in (torch.zeros_like, torch.ones_like, lambda x: torch.full_like(x, 3), lambda _: torch.zeros(4, 8)):
        totals = cost_of(function, X).totals
        assert (totals.flops, totals.bytes_read, totals.bytes_written) == (0, 0, 128)


def test_an_empty_tensor_is_only_set_aside() -> None:
    totals = cost_of(torch.empty_like, X).totals
    assert (totals.bytes_read, totals.bytes_written) == (0, 0)


def test_counting_is_a_multiply_add_per_element() -> None:
    totals = cost_of(lambda x: torch.arange(x.shape[0]), X).totals
    assert (totals.flops, totals.bytes_written) == (8, 32)


def test_filling_with_a_tensor_reads_one_element() -> None:
    totals = cost_of(lambda x, value: x.clone().fill_(value), X, torch.tensor(2.0)).totals
    assert (totals.bytes_read, totals.bytes_written) == (128 + 4, 256)

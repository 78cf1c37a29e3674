import torch

from tests.cost.calls import cost_of, flops_of


def test_each_number_drawn_counts_once_and_nothing_is_read() -> None:
    for function in (torch.rand_like, torch.randn_like, lambda x: torch.empty_like(x).uniform_()):
        totals = cost_of(function, torch.ones(4, 8)).totals
        assert (totals.flops, totals.bytes_read, totals.bytes_written) == (32, 0, 128)


def test_probabilities_are_read() -> None:
    assert cost_of(torch.bernoulli, torch.ones(4, 8)).totals.bytes_read == 128


def test_sampling_sums_the_weights_first() -> None:
    assert flops_of(lambda x: torch.multinomial(x, 1), torch.ones(4, 8)) >= 32 + 4

import torch

from tests.cost.calls import flops_of, priced, spec


def test_a_running_sum_is_one_addition_per_element() -> None:
    assert flops_of(lambda x: torch.cumsum(x, 0), torch.ones(4, 8)) == 32
    assert flops_of(lambda x: torch.cummax(x, 0), torch.ones(4, 8)) == 32


def test_a_running_logsumexp_costs_five() -> None:
    assert flops_of(lambda x: torch.logcumsumexp(x, 0), torch.ones(4, 8)) == 5 * 32


def test_an_associative_scan_is_a_multiply_add_per_element() -> None:
    assert priced("higher_order.associative_scan", spec(4, 8), xs=spec(4, 8)).flops == 64

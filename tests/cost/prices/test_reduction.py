from collections.abc import Callable

import pytest
import torch

from tests.cost.calls import cost_of, flops_of, priced, several, spec

X = torch.ones(4, 8)


def test_each_element_that_goes_in_is_used_once() -> None:
    for function in (torch.sum, torch.mean, torch.amax, torch.prod, torch.argmax, torch.all):
        assert flops_of(function, X) == 32


def test_variance_costs_mean_difference_square_and_sum() -> None:
    assert flops_of(torch.var, X) == 4 * 32


def test_logsumexp_costs_four() -> None:
    assert flops_of(lambda x: torch.logsumexp(x, -1), X) == 4 * 32


def test_a_result_is_small() -> None:
    totals = cost_of(lambda x: torch.sum(x, -1), X).totals
    assert (totals.bytes_read, totals.bytes_written) == (32 * 4, 4 * 4)


def test_the_larger_of_two_is_pointwise() -> None:
    assert flops_of(torch.max, X, X) == 32


def test_a_value_read_back_to_python_is_read_and_not_written() -> None:
    totals = cost_of(lambda x: x + x.sum().item(), X).totals
    assert totals.bytes_read == 32 * 4 + 4 + 32 * 4
    assert totals.flops == 64


def test_a_cross_product_is_three_per_element() -> None:
    assert flops_of(torch.linalg.cross, torch.ones(5, 3), torch.ones(5, 3)) == 45


def test_every_tensor_of_a_list_is_reduced() -> None:
    found = priced("aten._foreach_norm.Scalar", several(spec(), spec()), self=several(spec(4), spec(6)))
    assert found.flops == 2 * 10


@pytest.mark.parametrize(
    ("function", "each"),
    [(torch.sum, 2), (torch.mean, 2), (torch.prod, 6), (lambda x: x.cumsum(0), 2), (lambda x: x.cumprod(0), 6)],
)
def test_complex_elements_cost_what_complex_additions_and_products_do(
    function: Callable[[torch.Tensor], torch.Tensor], each: int
) -> None:
    assert flops_of(function, torch.ones(3, 5, dtype=torch.complex64)) == each * 15
    assert flops_of(function, torch.ones(3, 5)) == 15

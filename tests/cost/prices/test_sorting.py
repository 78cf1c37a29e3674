import torch

from tests.cost.calls import flops_of

X = torch.rand(4, 8)


def test_sorting_takes_n_log_n_comparisons_along_the_dimension() -> None:
    assert flops_of(lambda x: torch.sort(x, dim=-1), X) == 32 * 3
    assert flops_of(lambda x: torch.sort(x, dim=0), X) == 32 * 2


def test_the_top_k_take_a_heap_of_k() -> None:
    assert flops_of(lambda x: torch.topk(x, 2), X) == 32 * 2
    assert flops_of(lambda x: torch.topk(x, 1), X) == 32


def test_a_median_takes_two_comparisons_per_element() -> None:
    assert flops_of(lambda x: torch.median(x), X) == 64  # noqa: PLW0108 - overloads confuse the type checker


def test_neighbours_are_compared_once() -> None:
    assert flops_of(torch.unique_consecutive, torch.ones(8)) == 8


def test_unique_values_are_sorted_first() -> None:
    assert flops_of(torch.unique, torch.ones(8)) == 8 * 4


def test_a_search_halves_the_table() -> None:
    assert flops_of(lambda x: torch.bucketize(x, torch.linspace(0, 1, 8)), X) == 32 * 4 + 2 * 8

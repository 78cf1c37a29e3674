import torch
from torch import Tensor

from tests.cost.calls import cost_of, flops_of

TABLE = torch.ones(1000, 8)
INDEX = torch.tensor([3, 5, 7])


def test_only_the_rows_picked_are_read() -> None:
    for function in (lambda t, i: t[i], lambda t, i: torch.index_select(t, 0, i), torch.embedding):
        totals = cost_of(function, TABLE, INDEX).totals
        assert (totals.flops, totals.bytes_read, totals.bytes_written) == (0, 3 * 8 * 4 + 3 * 8, 3 * 8 * 4)


def test_a_table_smaller_than_what_is_picked_is_read_once() -> None:
    totals = cost_of(torch.embedding, torch.ones(2, 8), torch.zeros(100, dtype=torch.long)).totals
    assert totals.bytes_read == 2 * 8 * 4 + 100 * 8


def test_gather_reads_one_element_per_index() -> None:
    totals = cost_of(lambda t: torch.gather(t, 0, torch.zeros(1, 8, dtype=torch.long)), TABLE).totals
    assert totals.bytes_read == 8 * 4 + 8 * 8


def put(accumulate: bool) -> object:  # noqa: FBT001 - one switch
    def function(table: Tensor, index: Tensor, values: Tensor) -> Tensor:
        return table.index_put_((index,), values, accumulate=accumulate)

    return function


def test_putting_in_place_touches_only_the_places_named() -> None:
    values = torch.ones(3, 8)
    plain, added = put(accumulate=False), put(accumulate=True)
    assert callable(plain)
    assert callable(added)
    totals = cost_of(plain, TABLE.clone(), INDEX, values).totals
    assert (totals.flops, totals.bytes_read, totals.bytes_written) == (0, 96 + 24, 96)
    totals = cost_of(added, TABLE.clone(), INDEX, values).totals
    assert (totals.flops, totals.bytes_read, totals.bytes_written) == (24, 96 + 24 + 96, 96)


def test_putting_out_of_place_copies_the_target() -> None:
    totals = cost_of(lambda t, i, v: torch.index_put(t, (i,), v), TABLE, INDEX, torch.ones(3, 8)).totals
    assert totals.bytes_read == 32_000 + 96 + 24
    assert totals.bytes_written == 32_000


def test_adding_rows_is_one_addition_per_element() -> None:
    assert flops_of(lambda t, i, v: t.index_add(0, i, v), TABLE, INDEX, torch.ones(3, 8)) == 24
    index = torch.zeros(3, 8, dtype=torch.long)
    assert flops_of(lambda t, v: t.scatter_add(0, index, v), TABLE, torch.ones(3, 8)) == 24


def test_scattering_a_value_reads_only_the_index() -> None:
    index = torch.zeros(3, 8, dtype=torch.long)
    totals = cost_of(lambda t: t.scatter_(0, index, 1.0), TABLE.clone()).totals
    assert (totals.flops, totals.bytes_read, totals.bytes_written) == (0, 24 * 8, 24 * 4)


def test_the_gradient_of_an_embedding_adds_each_row_once() -> None:
    table = torch.ones(10, 8, requires_grad=True)
    both = cost_of(lambda t: torch.embedding(t, INDEX), table, backward=True).totals
    assert both.flops == 24


def test_a_bag_sums_the_rows_it_picks() -> None:
    bag = torch.nn.EmbeddingBag(10, 8, mode="sum")
    assert flops_of(bag, torch.tensor([[1, 2, 3]])) >= 24


def test_finding_what_is_not_zero_compares_each_element() -> None:
    assert flops_of(torch.nonzero, torch.ones(4, 8)) == 32


def test_one_hot_and_masked_rows_have_prices() -> None:
    assert cost_of(lambda x: x[x > 0], torch.ones(4)).totals.bytes_written > 0
    assert flops_of(lambda x: torch.masked_select(x, x > 0), torch.ones(4)) == 4

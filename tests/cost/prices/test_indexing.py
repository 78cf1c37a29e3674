import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from tests.cost.calls import cost_of, flops_of, priced, spec
from torchstone.record.cost import Totals
from torchstone.record.value import Value

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


def test_indices_that_are_broadcast_name_every_pair() -> None:
    rows, columns = torch.tensor([[0], [1], [2]]), torch.tensor([[0, 1, 2, 3]])
    totals = cost_of(lambda t, v: t.index_put_((rows, columns), v), TABLE.clone(), torch.ones(3, 4)).totals
    assert (totals.bytes_read, totals.bytes_written) == (12 * 4 + 7 * 8, 12 * 4)


def test_filling_rows_writes_whole_rows() -> None:
    for dim, places in ((0, 3 * 8), (1, 3 * 1000), (-1, 3 * 1000)):
        totals = cost_of(lambda t, dim=dim: t.index_fill_(dim, INDEX, 1.0), TABLE.clone()).totals
        assert totals.bytes_written == 4 * places


def test_scattering_with_a_reduction_combines_in_place_or_not() -> None:
    table, index = spec(1000, 8), spec(3, 8, dtype="int64")
    values: tuple[dict[str, Value], ...] = ({"src": spec(3, 8)}, {"value": 2.0})
    for overload, value in zip(("reduce", "value_reduce"), values, strict=True):
        source = (96,) if "src" in value else ()
        named: dict[str, Value] = {"self": table, "dim": 0, "index": index, **value, "reduce": "add"}
        copied = priced(f"aten.scatter.{overload}", table, **named)
        assert (copied.flops, copied.reads, copied.writes) == (24, (32_000, 192, *source), (32_000,))
        in_place = priced(f"aten.scatter_.{overload}", table, **named)
        assert (in_place.flops, in_place.reads, in_place.writes) == (24, (96, 192, *source), (96,))
    assert flops_of(lambda t: t.put_(INDEX, torch.ones(3), accumulate=True), TABLE.clone()) == 3


def test_an_empty_source_is_an_input_of_its_own() -> None:
    index, nothing = spec(0, dtype="int64"), spec(0)
    found = priced("aten.scatter_add.default", spec(4), self=spec(4), dim=0, index=index, src=nothing)
    assert found.reads == (16, 0, 0)


def test_a_bag_scales_by_its_weights_divides_for_a_mean_and_reads_a_small_table_once() -> None:
    rows, start, weights = torch.tensor([0, 1, 1]), torch.tensor([0]), torch.ones(3)

    def bag(mode: str, weights: Tensor | None = None) -> Totals:
        return cost_of(
            lambda t: embedding_bag(rows, t, start, mode=mode, per_sample_weights=weights), torch.ones(2, 8)
        ).totals

    assert [bag("sum").flops, bag("max").flops, bag("mean").flops] == [24, 24, 24 + 8]
    assert bag("sum", weights).flops == 24 + 24
    assert bag("sum").bytes_read == 2 * 8 * 4 + 3 * 8 + 8


def test_the_gradient_of_a_bag_goes_to_each_row_it_was_made_of() -> None:
    table, weights = torch.ones(10, 8, requires_grad=True), torch.ones(3, requires_grad=True)
    rows, start = torch.tensor([1, 2, 3]), torch.tensor([0])

    def bag(table: Tensor, weights: Tensor) -> Tensor:
        return embedding_bag(rows, table, start, mode="sum", per_sample_weights=weights)

    forward, rows_again, dot_products = 2 * 24, 2 * 24, 2 * 24
    assert cost_of(bag, table, weights, backward=True).totals.flops == forward + rows_again + dot_products


def test_rows_that_are_too_long_are_measured_and_scaled() -> None:
    rows = torch.tensor([1, 2, 3])
    layer = torch.nn.Embedding(10, 8, max_norm=1.0)
    assert flops_of(layer, rows) == 3 * 24

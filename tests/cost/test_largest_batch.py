"""The largest batch is that of captures: it fits, and one more does not."""

import pytest
import torch
from torch import nn

from tests.cost.devices import device
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.roofline import predict
from torchstone.record.cost import Conventions, Prediction


class Growing(nn.Module):
    """With one sequence the table weighs most; with many, what is computed from the inputs does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        table = torch.ones(3000, 64).cos()
        shifted = tokens + table[: tokens.shape[1]]
        return self.inner(shifted).gelu().sum(-1)


class Squares(nn.Module):
    """Compares every row with every other one: the first dimension is not that of a batch."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        known = torch.cat([torch.ones(20, 4), rows])
        return (known @ known.T).exp().sum(1)


class Logits(nn.Module):
    """One row of tokens: up to 32 rows take one row of tiles."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 5000, bias=False)

    def forward(self, hidden: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        kept = torch.cat([cache, hidden[:, None]], dim=1)
        return self.head(hidden + kept.mean(1))


def prediction(model: nn.Module, *inputs: torch.Tensor, memory_bytes: int, tile: int | None = None) -> Prediction:
    trace = capture(model, inputs)
    return predict(trace, price(trace, Conventions(tile=tile)), device(memory_bytes=memory_bytes))


@pytest.mark.parametrize("batch", [1, 2, 7])
@pytest.mark.parametrize("memory_bytes", [3_000_000, 20_000_000])
def test_a_table_that_is_computed_without_the_inputs_does_not_grow(batch: int, memory_bytes: int) -> None:
    def at(size: int) -> Prediction:
        return prediction(Growing(), torch.ones(size, 100, 64), memory_bytes=memory_bytes)

    largest = at(batch).largest_batch
    assert largest is not None
    assert (at(largest).fits, at(largest + 1).fits) == (True, False)


@pytest.mark.parametrize("batch", [1, 5, 32])
def test_rows_that_fill_a_tile_take_no_more_memory(batch: int) -> None:
    def at(size: int) -> Prediction:
        inputs = (torch.ones(size, 64), torch.ones(size, 96, 64))
        return prediction(Logits(), *inputs, memory_bytes=12_000_000, tile=32)

    first = at(batch)
    assert first.largest_batch is not None
    assert first.eager_largest_batch is not None
    assert (at(first.largest_batch).fits, at(first.largest_batch + 1).fits) == (True, False)
    # Of eager lifetimes one number is known, and it is taken to grow in proportion.
    assert at(first.eager_largest_batch).eager_peak_bytes == pytest.approx(12_000_000, rel=0.03)


def test_the_first_dimension_is_not_a_batch_where_memory_does_not_divide_by_it() -> None:
    assert prediction(Squares(), torch.ones(7, 4), memory_bytes=10**9).largest_batch is None


def test_not_even_one_fits() -> None:
    assert prediction(nn.Linear(100, 100), torch.ones(2, 100), memory_bytes=40_000).largest_batch == 0


def test_without_an_input_there_is_no_batch() -> None:
    class Constant(nn.Module):
        def forward(self) -> torch.Tensor:
            return torch.ones(3) + 1

    assert prediction(Constant(), memory_bytes=10**6).largest_batch is None

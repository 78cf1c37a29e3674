"""The largest batch is that of captures: it fits, and one more does not; a range encloses it."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.cost.devices import device
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.formats import with_formats
from torchstone.cost.roofline import predict
from torchstone.record.cost import Conventions, Fits, Formats, Prediction


class Growing(nn.Module):
    """With one sequence the table weighs most; with many, what is computed from the inputs does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        table = torch.ones(3000, 64).cos()
        shifted = tokens + table[: tokens.shape[1]]
        return nn.functional.gelu(self.inner(shifted)).sum(-1)


class Squares(nn.Module):
    """Compares every row with every other one: the first dimension is not that of a batch."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        known = torch.cat([torch.ones(20, 4), rows])
        return (known @ known.T).exp().sum(1)


class Counted(nn.Module):
    """A table of positions that begins after the tokens in the cache: a number, whatever the batch."""

    def forward(self, tokens: torch.Tensor, past: dict[str, torch.Tensor]) -> torch.Tensor:
        positions = torch.arange(100)[None] + past["seen"]
        table = positions[..., None] * torch.ones(64).cos()  # [1, tokens, width]
        return (tokens + past["keys"] + table).exp()


class Held(nn.Module):
    """Python holds on to a large table that does not grow, and to a first result, to the end."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        table = torch.ones(2000, 64).cos()
        first = tokens + table[: tokens.shape[1]]
        second = first.exp()
        third = second.sigmoid()
        return third.sum(-1)


class BatchSecond(nn.Module):
    """Queries without an input, repeated along the second dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.ones(100, 64))
        self.attention = nn.MultiheadAttention(64, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        queries = self.queries[:, None].repeat(1, tokens.shape[0], 1)
        return self.attention(queries, tokens.transpose(0, 1), tokens.transpose(0, 1))[0]


class Expanded(nn.Module):
    """A mask that is made once and read with the batch's shape: it has no more memory."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(1, 300, 64).cos().expand(tokens.shape[0], -1, -1)
        return (tokens * mask).exp()


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
    _encloses(first, at)


def _encloses(first: Prediction, at: Callable[[int], Prediction]) -> None:
    """Both ranges contain the largest batch of captures: their ends are enough, as peaks do not fall."""
    memory = first.hardware.memory_bytes
    assert first.largest_batch is not None
    assert first.largest_batch_at_most is not None
    assert at(first.largest_batch).peak_bytes <= memory < at(first.largest_batch_at_most + 1).peak_bytes
    assert first.eager_largest_batch is not None
    assert first.eager_largest_batch_at_most is not None
    fits, too_large = at(first.eager_largest_batch), at(first.eager_largest_batch_at_most + 1)
    assert (fits.eager_peak_bytes or 0) <= memory < (too_large.eager_peak_bytes or 0)


@pytest.mark.parametrize("tile", [None, 32])
@pytest.mark.parametrize("batch", [1, 2, 17])
@pytest.mark.parametrize(
    ("model", "shape"), [(Held, (100, 64)), (BatchSecond, (50, 64)), (Expanded, (300, 64)), (Growing, (77, 64))]
)
def test_the_ranges_contain_the_largest_batch_of_captures(
    model: Callable[[], nn.Module], shape: tuple[int, ...], batch: int, tile: int | None
) -> None:
    def at(size: int) -> Prediction:
        return prediction(model(), torch.ones(size, *shape), memory_bytes=7_000_001, tile=tile)

    _encloses(at(batch), at)


@pytest.mark.parametrize(("batch", "exact"), [(1, False), (2, True), (3, True)])
def test_what_is_computed_from_a_number_of_a_cache_does_not_grow(batch: int, exact: bool) -> None:  # noqa: FBT001 - a case
    def at(size: int) -> Prediction:
        past = {"seen": torch.tensor(5), "keys": torch.ones(size, 100, 64)}
        trace = capture(Counted(), (torch.ones(size, 100, 64), past))
        return predict(trace, price(trace), device(memory_bytes=1_000_000))

    first = at(batch)
    _encloses(first, at)
    assert (
        first.largest_batch == first.largest_batch_at_most
    ) == exact  # with one, [1, tokens, width] may be the batch's


def test_a_mask_that_is_stretched_to_the_batch_takes_the_memory_of_one() -> None:
    found = prediction(Expanded(), torch.ones(2, 300, 64), memory_bytes=7_000_001)
    # Inputs, their product and its exponential are 76,800 bytes for each of the batch, three at a time; the mask is 1.
    assert found.largest_batch == found.largest_batch_at_most == (7_000_001 - 76_800) // (3 * 76_800)


def test_the_first_dimension_is_not_a_batch_where_memory_does_not_divide_by_it() -> None:
    assert prediction(Squares(), torch.ones(7, 4), memory_bytes=10**9).largest_batch is None


def test_not_even_one_fits() -> None:
    assert prediction(nn.Linear(100, 100), torch.ones(2, 100), memory_bytes=40_000).largest_batch == 0


def test_without_an_input_there_is_no_batch() -> None:
    class Constant(nn.Module):
        def forward(self) -> torch.Tensor:
            return torch.ones(3) + 1

    assert prediction(Constant(), memory_bytes=10**6).largest_batch is None


def test_gradients_of_weights_in_another_format_do_not_grow_with_the_batch() -> None:
    """Also where they have the element type of the capture and their weights have another one."""

    def found(batch: int) -> Prediction:
        model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
        trace = with_formats(capture(model, torch.ones(batch, 64), backward=True), Formats(weights="float8_e4m3fn"))
        return predict(trace, price(trace), device(memory_bytes=10**6))

    least = found(4)
    assert least.largest_batch is not None
    assert least.largest_batch_at_most is not None
    exact = found(least.largest_batch).largest_batch
    assert exact is not None
    assert least.largest_batch <= exact <= least.largest_batch_at_most
    assert least.largest_batch > 0.9 * exact


def test_a_model_without_an_op_holds_its_input() -> None:
    found = prediction(nn.Identity(), torch.ones(2, 250), memory_bytes=10_000)
    assert (found.largest_batch, found.largest_batch_at_most, found.eager_largest_batch) == (10, 10, 10)


class Widths(nn.Module):
    """A table made of weights alone, whose rows may be as many as a captured batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(3, 700), requires_grad=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        table = self.weights.exp() * 2
        return (rows[:, None] * table[None]).sum(-1) @ table[:, :9]


class Pairs(nn.Module):
    """Compares each row of a batch with each other one, as contrastive losses do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 40)

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return self.inner(first) @ self.inner(second).T


class Statistics(nn.Module):
    """Norms over the batch: what they are made of has no dimension of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(42, 420)
        self.norm = nn.BatchNorm1d(420)  # as many as whole batches of each size below

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        widened = self.norm(self.inner(rows))
        return (widened - widened.mean(0, keepdim=True)).exp()


class Unrolled(nn.Module):
    """A recurrence: states of a batch that no input was needed for."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(13, 37, batch_first=True, bidirectional=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.inner(tokens)[0]


@pytest.mark.parametrize("wanted", [1, 2, 3, 5, 33])
@pytest.mark.parametrize("batch", [2, 3, 7])
@pytest.mark.parametrize(("model", "shape"), [(Widths, (700,)), (Statistics, (42,)), (Unrolled, (11, 13))])
def test_one_byte_decides_whether_a_batch_fits(
    model: Callable[[], nn.Module], shape: tuple[int, ...], batch: int, wanted: int
) -> None:
    """Also where the batch that fits is smaller than the captured one, or the captured one stands for other things."""
    if model is Statistics and wanted == 1:
        wanted = 4  # it has no norm over one row
    trace = capture(model(), torch.ones(wanted, *shape))
    peak = price(trace).peak.total_bytes
    enough = prediction(model(), torch.ones(batch, *shape), memory_bytes=peak)
    assert enough.largest_batch is not None
    assert enough.largest_batch_at_most is not None
    assert enough.largest_batch <= enough.largest_batch_at_most
    assert enough.largest_batch_at_most >= wanted
    short = prediction(model(), torch.ones(batch, *shape), memory_bytes=peak - 1)
    assert short.largest_batch is not None
    assert short.largest_batch < wanted


@pytest.mark.parametrize("tile", [None, 32])
@pytest.mark.parametrize("batch", [1, 2, 7])
def test_a_product_of_the_batch_with_itself_may_grow_with_its_square(batch: int, tile: int | None) -> None:
    def at(size: int) -> Prediction:
        inputs = torch.ones(size, 64), torch.ones(size, 64)
        return prediction(Pairs(), *inputs, memory_bytes=3_000_000, tile=tile)

    first, largest = at(batch), at(batch).largest_batch
    assert largest is not None
    assert first.largest_batch_at_most is not None
    assert at(largest).fits
    assert not at(first.largest_batch_at_most + 1).fits
    assert first.eager_largest_batch is None  # of eager lifetimes one number is known


def test_weights_that_are_computed_have_gradients_that_do_not_grow() -> None:
    class Computed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.made = nn.Linear(8, 2048)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            weights = self.made(torch.ones(1, 8)).view(64, 32)
            return nn.functional.linear(tokens, weights)

    def at(size: int, memory_bytes: int) -> Prediction:
        trace = capture(Computed(), torch.ones(size, 5, 32), backward=True)
        return predict(trace, price(trace), device(memory_bytes=memory_bytes))

    peak = at(8, 10**6).peak_bytes
    assert (at(2, peak).largest_batch_at_most or 0) >= 8


def test_keys_and_values_that_are_packed_are_not_a_batch_of_two() -> None:
    """nn.MultiheadAttention stacks them in front of tokens and batch."""
    model = nn.TransformerDecoderLayer(32, 4, 64, batch_first=True).eval()

    def at(size: int, memory_bytes: int) -> Prediction:
        inputs = (torch.ones(size, 7, 32), torch.ones(size, 10, 32))
        return prediction(model, *inputs, memory_bytes=memory_bytes, tile=32)

    peak = at(3, 10**6).peak_bytes
    assert (at(2, peak).largest_batch_at_most or 0) >= 3


def test_a_forward_pass_that_ends_early_has_no_largest_batch() -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(30, 30)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            self.inner(rows)
            msg = "no"
            raise ValueError(msg)

    found = prediction(Failing(), torch.ones(2, 30), memory_bytes=10**6)
    assert (found.largest_batch, found.fits, found.verdict) == (None, False, Fits.UNKNOWN)
    assert prediction(Failing(), torch.ones(2, 30), memory_bytes=1000).verdict is Fits.NO  # what ran is too large

"""A verified largest batch is that of captures made by hand: it fits, and one more does not."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import torchstone as ts
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.models.inputs import InputOptions
from torchstone.record import codec
from torchstone.record.cost import CostTable, Prediction
from torchstone.report.cost_text import largest_batch_text
from torchstone.workflows.cost import CostRequest, PricingOptions, cost_model
from torchstone.workflows.model_source import ModelRequest

MEMORY = 3 << 20


@pytest.fixture
def hardware(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    text = "[small]\npeak_tflops = { float32 = 1.0 }\nmemory_mib = 3\nbandwidth_gb_per_s = 100\n"
    path.write_text(text, encoding="utf-8")
    return str(path)


def predicted(model: nn.Module, inputs: object, hardware: str, *, mode: str = "auto") -> Prediction:
    found = ts.price(ts.trace(model, inputs, mode=mode), hardware=hardware).prediction
    assert found is not None
    return found


class Padded(nn.Module):
    """Fills its rows up to a multiple of 24, as kernels of fixed tiles do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(30, 70)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        filled = nn.functional.pad(rows, (0, 0, 0, -len(rows) % 24))
        return self.inner(filled).relu()[: len(rows)]


class SpecialOne(nn.Module):
    """Takes another way with one row."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(30, 70)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        made = self.inner(rows)
        return made if len(rows) == 1 else (made.exp() * made.cos() + made.sin()) * (made - made.mean(0))


class Expanded(nn.Module):
    """A table that is stretched to the batch and then copied: nothing to copy with one row."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1])[None].expand(len(tokens), -1).contiguous()
        return tokens * positions[..., None].float().cos()


class Encoder(nn.Module):
    """Tokens [sequence, batch], as torch's own layers take them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(self.table(tokens))
        return result


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.inner(tokens, tokens, tokens, attn_mask=mask)[0]
        return result


def rows(batch: int) -> tuple[torch.Tensor, ...]:
    return (torch.ones(batch, 30),)


def tokens_first(batch: int) -> tuple[torch.Tensor, ...]:
    return (torch.zeros(11, batch, dtype=torch.long),)


def steps_first(batch: int) -> tuple[torch.Tensor, ...]:
    return (torch.ones(9, batch, 16),)


def masked(batch: int) -> tuple[torch.Tensor, ...]:
    return torch.ones(batch, 5, 16), torch.zeros(5, 5)


def tokens(batch: int) -> tuple[torch.Tensor, ...]:
    return (torch.ones(batch, 12, 20),)


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Padded, rows),
        (SpecialOne, rows),
        (Expanded, tokens),
        (Encoder, tokens_first),
        (lambda: nn.LSTM(16, 16), steps_first),
        (lambda: nn.GRU(16, 16), steps_first),
        (Masked, masked),
    ],
    ids=["padded", "special one", "expanded", "[sequence, batch]", "LSTM", "GRU", "mask [tokens, tokens]"],
)
def test_the_batch_fits_and_one_more_does_not(
    model: Callable[[], nn.Module], inputs: Callable[[int], tuple[torch.Tensor, ...]], batch: int, hardware: str
) -> None:
    net = model()
    found = predicted(net, inputs(batch), hardware)

    def peaks(size: int) -> tuple[int, int]:
        peak = price(capture(net, inputs(size))).peak
        return peak.total_bytes, peak.eager_bytes or 0

    assert found.largest_batch_verified
    assert found.captured_batch == batch
    assert found.largest_batch is not None
    assert found.largest_batch == found.largest_batch_at_most
    assert peaks(found.largest_batch)[0] <= MEMORY < peaks(found.largest_batch + 1)[0]
    assert found.eager_largest_batch is not None
    assert found.eager_largest_batch == found.eager_largest_batch_at_most
    assert peaks(found.eager_largest_batch)[1] <= MEMORY < peaks(found.eager_largest_batch + 1)[1]
    assert {found.largest_batch, found.largest_batch + 1} <= {*found.batch_captures, batch}


def test_a_batch_in_the_second_dimension_is_named(hardware: str) -> None:
    assert any("second dimension" in note for note in predicted(Encoder(), tokens_first(2), hardware).notes)
    assert not any("second dimension" in note for note in predicted(Padded(), rows(2), hardware).notes)


class Refusing(nn.Module):
    def __init__(self, most: int, multiple: int = 1) -> None:
        super().__init__()
        self.most, self.multiple = most, multiple
        self.inner = nn.Linear(30, 70)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        if len(given) > self.most or len(given) % self.multiple:
            msg = "no such batch"
            raise ValueError(msg)
        result: torch.Tensor = self.inner(given)
        return result


def test_a_model_may_refuse_batches(hardware: str) -> None:
    found = predicted(Refusing(50), rows(3), hardware)
    assert (found.largest_batch, found.largest_batch_at_most) == (50, 50)
    assert "a batch of 51 ends with ValueError: no such batch" in found.notes

    found = predicted(Refusing(10**9, multiple=4), rows(4), hardware)
    assert found.largest_batch is not None
    assert found.largest_batch_at_most == found.largest_batch + 3
    assert found.largest_batch % 4 == 0


def test_what_is_no_batch_has_no_largest_one(hardware: str) -> None:
    image = predicted(nn.Conv2d(3, 8, 3), torch.ones(3, 20, 20), hardware)
    assert image.largest_batch is None
    assert any(note.startswith("there is no largest batch: with 6 in place of 3") for note in image.notes)


class Looping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(300, 700)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.inner(one).relu() for one in given])


class Listing(nn.Module):
    """Makes memory by Python for each row."""

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return given * torch.tensor([[0.5] * 5000] * len(given))[:, :30]


def test_captures_that_would_grow_without_end_are_not_made(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    text = "[large]\npeak_tflops = { float32 = 1.0 }\nmemory_mib = 100000\nbandwidth_gb_per_s = 100\n"
    path.write_text(text, encoding="utf-8")
    for model, width, reason in ((Looping(), 300, "more ops"), (Listing(), 30, "more memory without an op")):
        found = predicted(model, torch.ones(1, width), str(path))
        assert not found.largest_batch_verified
        assert any("not verified" in note and reason in note for note in found.notes), found.notes


def test_a_model_on_real_tensors_is_not_captured_with_larger_batches(hardware: str) -> None:
    found = predicted(Padded(), rows(24), hardware, mode="cpu")
    assert not found.largest_batch_verified
    assert any("real tensors (cpu)" in note for note in found.notes)


@pytest.mark.parametrize("is_saved", [False, True], ids=["in memory", "saved"])
def test_a_trace_without_its_model_is_not_verified_and_says_so(
    hardware: str, tmp_path: Path, *, is_saved: bool
) -> None:
    trace = capture(nn.Linear(30, 70), rows(3))
    codec.save(tmp_path / "trace.json", trace)
    table = priced(str(tmp_path / "trace.json"), hardware) if is_saved else ts.price(trace, hardware=hardware)
    found = table.prediction
    assert found is not None
    assert found.largest_batch is not None
    assert not found.largest_batch_verified
    note = next(note for note in found.notes if "worked out from one capture, not verified" in note)
    assert "rows of the first input, 3 in this run" in note


class Recurrent(nn.Module):
    """A sequence of numbers, of which none is a batch: a recurrence runs along the first dimension."""

    def __init__(self, *, is_mixed: bool) -> None:
        super().__init__()
        self.mixed = nn.Conv1d(31, 8, 1) if is_mixed else nn.Conv1d(1, 8, 3, padding=1)
        self.inner = nn.GRU(1 if is_mixed else 8, 16, batch_first=True)
        self.is_mixed = is_mixed

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        mixed = self.mixed(given[None]) if self.is_mixed else self.mixed(given.T).T
        return self.inner(mixed)[0]


@pytest.mark.parametrize(
    ("model", "given", "why"),
    [
        (Recurrent(is_mixed=False), torch.ones(31, 1), "dimension 0 of the inputs is that of a sequence"),
        (Recurrent(is_mixed=True), torch.ones(31, 1), "with 62 in place of 31 in dimension 0"),
        (nn.Softmax(0), torch.tensor(1.0), "no dimension that could be that of a batch"),
    ],
    ids=["sequence", "channels", "number"],
)
def test_it_is_said_why_there_is_no_largest_batch(
    model: nn.Module, given: torch.Tensor, why: str, hardware: str
) -> None:
    table = ts.price(ts.trace(model, given), hardware=hardware)
    assert table.prediction is not None
    assert table.prediction.largest_batch is None
    assert why in table.prediction.largest_batch_unknown
    assert f"no largest batch is known: {table.prediction.largest_batch_unknown}" in largest_batch_text(
        table.prediction
    )
    alone = ts.price(capture(model, given), hardware=hardware).prediction
    assert alone is not None
    assert alone.largest_batch_unknown
    assert not any("worked out" in note for note in alone.notes)


def priced(model: str, hardware: str, **options: object) -> CostTable:
    request = ModelRequest(model=model, options=InputOptions(**options))  # type: ignore[arg-type]
    return cost_model(CostRequest(model=request, pricing=PricingOptions(hardware=hardware))).table


def test_generated_inputs_are_generated_again(hardware: str) -> None:
    """The caches of a decode step are objects that only their maker can resize."""
    for options in ({}, {"phase": "decode", "cache_len": 20}, {"batch_size": 3}):
        found = priced("tiny:gpt2", hardware, **options).prediction
        assert found is not None
        assert found.largest_batch_verified
        assert found.largest_batch is not None
        fits, too_large = (
            priced("tiny:gpt2", hardware, **{**options, "batch_size": size}).prediction
            for size in (found.largest_batch, found.largest_batch + 1)
        )
        assert fits is not None
        assert too_large is not None
        assert (fits.fits, too_large.fits) == (True, False)


def test_patches_are_not_samples() -> None:
    """The first input of Qwen2-VL has 16 rows for each image."""
    found = priced("tiny:qwen2_vl", "n150").prediction
    assert found is not None
    assert found.captured_batch == 1
    assert not found.largest_batch_verified  # its vision tower loops over the images
    assert found.largest_batch is not None
    growth = priced("tiny:qwen2_vl", "n150", batch_size=9).totals.peak_bytes - found.peak_bytes
    assert found.largest_batch < 1.1 * 8 * found.hardware.memory_bytes / growth

"""Memory in whole tiles of 32 x 32: counts by hand."""

from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.models.inputs import InputOptions
from torchstone.record.cost import Category, Conventions, CostTable
from torchstone.report.cost_text import _padding_text
from torchstone.workflows.cost import CostRequest, PricingOptions, cost_model
from torchstone.workflows.model_source import ModelRequest

TILES = Conventions(tile=32)
TILE = 32 * 32


def priced(model: nn.Module, *inputs: Tensor) -> tuple[CostTable, CostTable]:
    trace = capture(model.bfloat16(), inputs)
    return price(trace), price(trace, TILES)


def test_matrices_and_vectors_take_whole_tiles() -> None:
    loose, tiled = priced(nn.Linear(40, 70), torch.zeros(3, 40, dtype=torch.bfloat16))

    weight, bias, given, made = 3 * 2, 3, 2, 3  # tiles of 70 x 40, of a row of 70, of 3 x 40 and of 3 x 70
    assert tiled.peak.total_bytes == (weight + bias + given + made) * TILE * 2
    assert loose.peak.total_bytes == (70 * 40 + 70 + 3 * 40 + 3 * 70) * 2
    assert tiled.peak.padding == {
        Category.WEIGHTS: (weight + bias) * TILE * 2 - (70 * 40 + 70) * 2,
        Category.KV_CACHE: 0,
        Category.ACTIVATIONS: (given + made) * TILE * 2 - (3 * 40 + 3 * 70) * 2,
    }
    assert loose.peak.padding == {}


def test_whole_tiles_need_no_padding() -> None:
    loose, tiled = priced(nn.Linear(64, 96, bias=False), torch.zeros(2, 32, 64, dtype=torch.bfloat16))
    assert tiled.peak.total_bytes == loose.peak.total_bytes
    assert set(tiled.peak.padding.values()) == {0}


def test_images_are_rows_of_pixels_and_kernels_one_matrix() -> None:
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.ReLU())
    _, tiled = priced(model, torch.zeros(1, 3, 8, 8, dtype=torch.bfloat16))

    kernel = 1 * 2  # 27 x 64
    image, features = 2 * 1, 2 * 2  # 64 pixels of 3 channels, and of 64
    # While ReLU runs, the image is still there as an input, and there are two maps of features.
    assert tiled.peak.total_bytes == (kernel + image + 2 * features) * TILE * 2


class _Patches(nn.Module):
    """Tokens of an image, as a vision transformer makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Conv2d(3, 40, 4, stride=4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(x).flatten(2).transpose(1, 2) + 1.0


def test_channels_that_were_moved_to_the_end_are_columns() -> None:
    _, tiled = priced(_Patches(), torch.zeros(2, 3, 8, 8, dtype=torch.bfloat16))

    kernel, image = 2 * 2, 4 * 1  # 40 x 48, and 128 pixels of 3 channels
    patches, tokens = 1 * 2, 2 * 1 * 2  # 8 pixels of 40 channels, and 4 tokens of 40 for each of 2 images
    assert tiled.peak.total_bytes == (kernel + image + patches + tokens) * TILE * 2


def test_tables_that_are_looked_up_in_and_whole_numbers_lie_row_by_row() -> None:
    _, tiled = priced(nn.Embedding(50, 40), torch.zeros(2, 5, dtype=torch.int64))
    assert tiled.peak.total_bytes == 50 * 40 * 2 + 10 * 8 + 2 * 2 * TILE * 2


def test_traffic_and_flops_stay_as_captured() -> None:
    loose, tiled = priced(nn.Linear(40, 70), torch.zeros(3, 40, dtype=torch.bfloat16))
    assert tiled.traffic == loose.traffic
    assert tiled.totals.flops == loose.totals.flops


def cost(model: str, hardware: str | None, devices: int | None = None, **more: Any) -> CostTable:
    options = InputOptions(phase="decode", cache_len=40, layers=6, **more)
    pricing = PricingOptions(hardware=hardware, devices=devices)
    return cost_model(CostRequest(model=ModelRequest(model=model, options=options), pricing=pricing)).table


def test_a_board_with_tiles_judges_the_fit_with_them() -> None:
    board, other = cost("Qwen/Qwen3-0.6B", "n150"), cost("Qwen/Qwen3-0.6B", "h100")

    assert board.conventions.tile == 32
    assert board.prediction is not None
    assert board.prediction.peak_bytes == board.peak.total_bytes > other.peak.total_bytes
    # 40 tokens take two rows of tiles in each of 8 heads; 6 layers, keys and values, at most one more of each
    row = 8 * 128 * 2
    assert 6 * 2 * 64 * row <= board.peak.kv_cache_bytes <= 7 * 2 * 64 * row
    assert sum(board.peak.padding.values()) == board.peak.total_bytes - other.peak.total_bytes
    assert board.totals.flops == other.totals.flops


@pytest.mark.parametrize(("block", "held"), [(16, 3 * 32), (32, 64), (48, 64), (64, 64)])
def test_each_block_of_a_paged_cache_takes_whole_tiles(block: int, held: int) -> None:
    """40 tokens and the new one are three blocks of 16, two of 32, and one of more."""
    paged = cost("Qwen/Qwen3-0.6B", "n150", cache="paged", block_size=block)
    assert paged.peak.kv_cache_bytes == 6 * 2 * 8 * 128 * 2 * held


def test_devices_hold_tiles_too() -> None:
    split, loose = cost("Qwen/Qwen3-0.6B", "n150", 2), cost("Qwen/Qwen3-0.6B", "h100", 2)
    assert split.tensor_parallel is not None
    assert loose.tensor_parallel is not None
    assert (split.tensor_parallel.peak_bytes or 0) > (loose.tensor_parallel.peak_bytes or 0)


def test_a_peak_that_moves_says_so_instead_of_negative_padding() -> None:
    table, _ = priced(nn.Linear(40, 70), torch.zeros(3, 40, dtype=torch.bfloat16))
    moved = {Category.WEIGHTS: 3 << 20, Category.KV_CACHE: -(1 << 20)}

    text = _padding_text(replace(table, peak=replace(table.peak, padding=moved)), 32)

    assert "add 2.00 MiB to the peak: 3.00 MiB weights" in text
    assert text.endswith("(it is at another op then, with 1.00 MiB less of KV cache)")

"""Caches of models that are no transformers: what modules keep for themselves, and arguments of other names."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.formats import with_formats
from torchstone.record.cost import Category, CostTable, Formats
from torchstone.workflows.cost import PricingOptions, price_trace

_FLOAT, _HEADS, _HEAD = 4, 4, 8
_WIDTH = _HEADS * _HEAD
_attend = nn.functional.scaled_dot_product_attention


class Keeps(nn.Module):
    """Attention with a cache of fixed size, as GPT-fast and torchtune have it."""

    k_cache: Tensor
    memory_of_values: Tensor

    def __init__(self, batch: int, tokens: int, *, persistent: bool = True, buffers: bool = True) -> None:
        super().__init__()
        self.project = nn.Linear(_WIDTH, _WIDTH, bias=False)
        for name in ("k_cache", "memory_of_values"):
            empty = torch.zeros(batch, _HEADS, tokens, _HEAD)
            if buffers:
                self.register_buffer(name, empty, persistent=persistent)
            else:
                setattr(self, name, empty)

    def forward(self, x: Tensor) -> Tensor:
        new = self.project(x).view(x.shape[0], 1, _HEADS, _HEAD).transpose(1, 2)
        self.k_cache[:, :, 3:4] = new
        self.memory_of_values[:, :, 3:4] = new
        return _attend(new, self.k_cache, self.memory_of_values)


class Grows(nn.Module):
    """Attention with a cache that comes in and goes out."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(_WIDTH, _WIDTH, bias=False)

    def step(self, x: Tensor, cache: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        new = self.project(x).view(x.shape[0], 1, _HEADS, _HEAD).transpose(1, 2)
        keys, values = (torch.cat([old, new], 2) for old in cache)
        return _attend(new, keys, values), (keys, values)


class Past(Grows):
    def forward(self, x: Tensor, past: tuple[Tensor, Tensor]) -> object:
        return self.step(x, past)


class KvCaches(Grows):
    def forward(self, x: Tensor, kv_caches: tuple[Tensor, Tensor]) -> object:
        return self.step(x, kv_caches)


class TwoCaches(Grows):
    def forward(self, x: Tensor, key_cache: Tensor, value_cache: Tensor) -> object:
        return self.step(x, (key_cache, value_cache))


class LayerPast(Grows):
    def forward(self, x: Tensor, layer_past: list[Tensor]) -> object:
        return self.step(x, (layer_past[0], layer_past[1]))


def _kept(table: CostTable) -> int:
    assert table.cache is not None
    return table.cache.size_bytes


@pytest.mark.parametrize(("batch", "tokens"), [(1, 31), (2, 50), (7, 128)])
@pytest.mark.parametrize("how", [{}, {"persistent": False}, {"buffers": False}])
def test_a_cache_that_modules_write_to_is_no_weight(batch: int, tokens: int, how: dict[str, bool]) -> None:
    trace = capture(Keeps(batch, tokens, **how), torch.ones(batch, 1, _WIDTH))
    cache = 2 * batch * _HEADS * tokens * _HEAD
    table = price(trace)
    assert _kept(table) == table.peak.kv_cache_bytes == cache * _FLOAT
    assert table.peak.weights_bytes == _WIDTH * _WIDTH * _FLOAT
    assert table.traffic.compulsory.written_bytes[Category.KV_CACHE] == 2 * batch * _WIDTH * _FLOAT
    assert _kept(price(with_formats(trace, Formats(kv_cache="float8_e4m3fn")))) == cache


def test_the_largest_batch_has_a_cache_for_each_sequence() -> None:
    tokens = 4096
    trace = capture(Keeps(2, tokens), torch.ones(2, 1, _WIDTH))
    found = price_trace(trace, PricingOptions(hardware="h100")).prediction
    assert found is not None
    assert found.largest_batch is not None
    each = 2 * _WIDTH * tokens * _FLOAT
    most = found.hardware.memory_bytes // each
    assert 0.99 * most < found.largest_batch <= most


@pytest.mark.parametrize("model", [Past, KvCaches, TwoCaches, LayerPast])
@pytest.mark.parametrize(("batch", "tokens"), [(1, 1), (3, 33)])
def test_a_cache_has_many_names(model: Callable[[], nn.Module], batch: int, tokens: int) -> None:
    old = [torch.ones(batch, _HEADS, tokens, _HEAD) for _ in range(2)]
    given = tuple(old) if model is TwoCaches else (old if model is LayerPast else tuple(old),)
    trace = capture(model(), (torch.ones(batch, 1, _WIDTH), *given))
    table = price(trace)
    assert _kept(table) == 2 * batch * tokens * _WIDTH * _FLOAT
    assert table.traffic.compulsory.written_bytes[Category.KV_CACHE] == 2 * batch * _WIDTH * _FLOAT
    assert _kept(price(with_formats(trace, Formats(kv_cache="int8_g128")))) == 2 * batch * tokens * _HEADS * (_HEAD + 2)


class Tables(nn.Module):
    """Positions, which torchtune calls a cache, and the statistics of a norm."""

    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.ones(64, 8, 2), persistent=False)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor, past_values: Tensor) -> Tensor:
        return self.norm(x + past_values) + self.cache[: x.shape[0], :, 0]


def test_tables_and_statistics_are_weights_and_past_values_are_data() -> None:
    table = price(capture(Tables().train(), (torch.ones(4, 8), torch.ones(4, 8))))
    assert table.cache is None
    assert table.peak.kv_cache_bytes == 0
    assert table.peak.weights_bytes == (64 * 8 * 2 + 4 * 8) * _FLOAT + 8  # and a count of batches

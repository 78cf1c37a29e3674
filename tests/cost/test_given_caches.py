"""Caches that a model is given: what stays in them after a step, whether the model gives them back or not."""

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, StaticCache

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.record.cost import CostTable

_LAYERS, _HEADS, _WIDTH, _BATCH, _SEEN, _FLOAT = 3, 2, 16, 2, 40, 4
_ROW = _BATCH * _HEADS * _WIDTH


class Rows(Tensor):
    """Rows of int8 values with a scale for each: a copy made by `clone` has plain values, as quanto's do."""

    __slots__: ClassVar[list[str]] = ["scales", "values8"]

    values8: Tensor
    scales: Tensor

    @staticmethod
    def __new__(cls: type["Rows"], values: Tensor, scales: Tensor) -> "Rows":
        return Tensor._make_wrapper_subclass(cls, values.shape, dtype=torch.float32, device=values.device)

    def __init__(self, values: Tensor, scales: Tensor) -> None:
        self.values8, self.scales = values, scales

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["values8", "scales"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], _context: None, _size: Any, _stride: Any) -> "Rows":
        return Rows(inner["values8"], inner["scales"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func is torch.ops.aten.detach.default:
            return Rows(func(args[0].values8), func(args[0].scales))
        plain = [one.values8.to(torch.float32) * one.scales if isinstance(one, Rows) else one for one in args]
        return func(*plain, **(kwargs or {}))


class PackedLayer:
    """Old rows packed, new ones as they are."""

    def __init__(self, tokens: int) -> None:
        shape = (_BATCH, _HEADS, tokens, _WIDTH)
        self.packed = Rows(torch.zeros(shape, dtype=torch.int8), torch.ones(*shape[:-1], 1))
        self.keys = torch.zeros(_BATCH, _HEADS, 0, _WIDTH)


class PackedCache:
    def __init__(self, tokens: int) -> None:
        self.layers = [PackedLayer(tokens) for _ in range(_LAYERS)]


class Attends(nn.Module):
    def __init__(self, *, gives_back: bool) -> None:
        super().__init__()
        self.project = nn.ModuleList([nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(_LAYERS)])
        self.gives_back = gives_back

    def forward(self, x: Tensor, cache: PackedCache) -> object:
        for layer, project in zip(cache.layers, self.project, strict=True):
            x = project(x)
            layer.keys = torch.cat([layer.keys, x], 2)
            keys = torch.cat([layer.packed + 0.0, layer.keys], 2)
            x = nn.functional.scaled_dot_product_attention(x, keys, keys)
        x = torch.cat([x] * 64, -1)  # the peak comes after all layers
        return (x, cache) if self.gives_back else x


@pytest.mark.parametrize("mode", ["fake", "cpu"])
@pytest.mark.parametrize("gives_back", [False, True])
@pytest.mark.parametrize("tokens", [1, 130])
def test_packed_rows_of_a_cache_take_what_they_store_and_stay(tokens: int, mode: str, *, gives_back: bool) -> None:
    one = torch.zeros(_BATCH, _HEADS, 1, _WIDTH)
    trace = capture(Attends(gives_back=gives_back), (one, PackedCache(tokens)), mode)
    assert trace.failure is None
    table = price(trace)
    assert table.cache is not None
    packed = _LAYERS * (_ROW * tokens + _BATCH * _HEADS * tokens * _FLOAT)
    assert table.cache.size_bytes == packed
    assert table.peak.kv_cache_bytes == packed + _LAYERS * _ROW * _FLOAT
    assert table.peak.weights_bytes == _LAYERS * _WIDTH * _WIDTH * _FLOAT


class Wrapped(nn.Module):
    """A model of transformers that is given its cache under another name."""

    def __init__(self, model: nn.Module, *, gives_back: bool) -> None:
        super().__init__()
        self.model, self.gives_back = model, gives_back

    def forward(self, ids: Tensor, cache: Any) -> Any:
        found = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
        return found if self.gives_back else found.logits


def _step(kind: str, *, gives_back: bool) -> CostTable:
    config = LlamaConfig(
        vocab_size=50, hidden_size=2 * _WIDTH, intermediate_size=24, num_hidden_layers=_LAYERS, num_attention_heads=2,
        num_key_value_heads=_HEADS,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    cache = DynamicCache(config=config) if kind == "dynamic" else StaticCache(config=config, max_cache_len=3 * _SEEN)
    with torch.no_grad():
        model(torch.zeros(_BATCH, _SEEN, dtype=torch.int64), past_key_values=cache)
    wrapped = Wrapped(model, gives_back=gives_back)
    return price(capture(wrapped, (torch.zeros(_BATCH, 1, dtype=torch.int64), cache)))


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_cache_is_kept_whether_it_is_given_back_or_not(kind: str) -> None:
    given_back, not_given_back = (_step(kind, gives_back=one) for one in (True, False))
    assert given_back.cache is not None
    assert not_given_back.cache is not None
    assert given_back.cache.size_bytes == not_given_back.cache.size_bytes
    assert given_back.peak.kv_cache_bytes == not_given_back.peak.kv_cache_bytes
    tokens = _SEEN + 1 if kind == "dynamic" else 3 * _SEEN
    assert not_given_back.peak.kv_cache_bytes >= _LAYERS * 2 * _ROW * tokens * _FLOAT

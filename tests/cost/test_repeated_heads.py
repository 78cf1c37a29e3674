"""Heads that a model's code expands before it caches them are kept several times, and the table says so."""

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from transformers import FalconConfig, FalconForCausalLM, LlamaConfig, LlamaForCausalLM

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.record.cost import CostTable

_WIDTH, _HEADS, _LAYERS, _VOCABULARY = 64, 8, 2, 100
_HEAD = _WIDTH // _HEADS
_FLOAT = 4


def falcon(**settings: Any) -> FalconForCausalLM:
    config = FalconConfig(
        hidden_size=_WIDTH,
        num_attention_heads=_HEADS,
        num_hidden_layers=_LAYERS,
        vocab_size=_VOCABULARY,
        **settings,
    )
    return FalconForCausalLM(config).eval()


def llama(heads: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=_WIDTH,
        intermediate_size=_WIDTH,
        num_attention_heads=_HEADS,
        num_key_value_heads=heads,
        num_hidden_layers=_LAYERS,
        vocab_size=_VOCABULARY,
    )
    return LlamaForCausalLM(config).eval()


def cost(model: torch.nn.Module, batch: int, tokens: int, past: int = 0) -> CostTable:
    inputs: dict[str, Any] = {"input_ids": torch.ones(batch, tokens, dtype=torch.long)}
    if past:
        with torch.no_grad():
            inputs["past_key_values"] = model(torch.ones(batch, past, dtype=torch.long)).past_key_values
    return price(capture(model, inputs))


def keys_and_values(batch: int, tokens: int, heads: int) -> int:
    return 2 * _LAYERS * batch * tokens * heads * _HEAD * _FLOAT


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
@pytest.mark.parametrize(("batch", "tokens", "past"), [(1, 6, 0), (3, 5, 0), (2, 1, 9)])
def test_falcon_of_the_new_architecture_keeps_each_head_several_times(
    heads: int, batch: int, tokens: int, past: int
) -> None:
    found = cost(falcon(new_decoder_architecture=True, num_kv_heads=heads), batch, tokens, past)
    assert found.cache is not None
    assert found.cache.head_copies == _HEADS // heads
    assert found.cache.size_bytes == keys_and_values(batch, past or tokens, _HEADS)  # as transformers keeps them
    assert found.cache.single_heads_bytes == keys_and_values(batch, past or tokens, heads)
    assert any("each key and value head" in note for note in found.notes) == (heads < _HEADS)


@pytest.mark.parametrize("model", [llama(2), falcon(multi_query=True), falcon(multi_query=False)])
@pytest.mark.parametrize(("tokens", "past"), [(6, 0), (1, 9)])
def test_heads_that_are_expanded_after_the_cache_are_kept_once(model: torch.nn.Module, tokens: int, past: int) -> None:
    found = cost(model, 2, tokens, past)
    assert found.cache is not None
    assert (found.cache.head_copies, found.cache.single_heads_bytes) == (1, found.cache.size_bytes)

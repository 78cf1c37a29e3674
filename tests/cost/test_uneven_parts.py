"""Tensor parallelism where columns, heads or tiles do not divide by the devices, by closed form."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Shard
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
)

from tests.cost.head_placement import most_keys
from torchstone.capture import capture
from torchstone.models import load
from torchstone.models.inputs import InputOptions
from torchstone.record.cost import Conventions, Formats, TensorParallel
from torchstone.record.trace import Trace
from torchstone.workflows.cost import PricingOptions, price_trace

_FLOAT = 4
_WIDTHS = [(64, 100, 40), (33, 50, 17), (10, 7, 9)]
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _up(number: int, to: int) -> int:
    return -(-number // to)


def _split(trace: Trace, devices: int, formats: Formats | None = None, hardware: str | None = None) -> TensorParallel:
    conventions = Conventions(formats=formats or Formats())
    options = PricingOptions(conventions=conventions, hardware=hardware, devices=devices)
    found = price_trace(trace, options).tensor_parallel
    assert found is not None
    return found


def _two_layers(inputs: int, inner: int, outputs: int, *, bias: bool) -> Trace:
    layers = (nn.Linear(inputs, inner, bias=bias), nn.ReLU(), nn.Linear(inner, outputs, bias=bias))
    return capture(nn.Sequential(*layers), torch.ones(6, inputs))


def _decoded(model: nn.Module, devices: int) -> TensorParallel:
    model, inputs = load(model.eval(), options=InputOptions(batch_size=2, phase="decode", cache_len=37))
    return _split(capture(model, inputs), devices)


@pytest.mark.parametrize("devices", [2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize(("inputs", "inner", "outputs"), _WIDTHS)
def test_the_device_with_most_columns_is_reported(devices: int, inputs: int, inner: int, outputs: int) -> None:
    columns = _up(inner, devices)
    assert columns == max(Shard(0).local_shard_size_and_offset(inner, devices, rank)[0] for rank in range(devices))
    for bias in (False, True):
        found = _split(_two_layers(inputs, inner, outputs, bias=bias), devices)
        weights = inputs * columns + columns * outputs
        assert found.weight_bytes == _FLOAT * (weights + (columns + outputs if bias else 0))
        assert 2 * 6 * weights <= found.flops <= 2 * 6 * weights + 6 * (inner + outputs)


@pytest.mark.parametrize("devices", [2, 3, 8])
@pytest.mark.parametrize(("inputs", "inner", "outputs"), [*_WIDTHS[:2], (96, 2880, 64)])
def test_parts_are_filled_up_to_whole_tiles_and_blocks(devices: int, inputs: int, inner: int, outputs: int) -> None:
    trace = _two_layers(inputs, inner, outputs, bias=False)
    columns = _up(inner, devices)
    tiles = _up(columns, 32) * _up(inputs, 32) + _up(outputs, 32) * _up(columns, 32)
    assert _split(trace, devices, hardware="n150").weight_bytes == tiles * 1024 * _FLOAT
    assert _split(trace, devices, Formats(weights="bfloat8_b")).weight_bytes == tiles * 1088
    scales = columns * _up(inputs, 32) + outputs * _up(columns, 32)
    values = _up(columns * inputs, 2) + _up(outputs * columns, 2)
    assert _split(trace, devices, Formats(weights="mxfp4")).weight_bytes == values + scales


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("heads", "keys", "inner", "vocabulary"), [(6, 2, 100, 101), (6, 1, 90, 64), (12, 12, 128, 333)]
)
def test_heads_and_vocabularies_that_do_not_divide(
    devices: int, heads: int, keys: int, inner: int, vocabulary: int
) -> None:
    """Queries, keys and values are matrices of their own (Llama) or one (Phi-3), as are gate and up."""
    width, head = 48, 48 // heads
    sizes: dict[str, Any] = {
        "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": 2, "num_attention_heads": heads,
        "num_key_value_heads": keys, "vocab_size": vocabulary, "tie_word_embeddings": False, **_TOKENS,
    }  # fmt: skip
    asked, kept, columns = _up(heads, devices) * head, most_keys(heads, keys, devices) * head, _up(inner, devices)
    layer = width * (asked + 2 * kept) + asked * width + 3 * width * columns + 2 * width
    whole = 2 * layer + width + vocabulary * width + _up(vocabulary, devices) * width
    for model in (LlamaForCausalLM(LlamaConfig(**sizes)), Phi3ForCausalLM(Phi3Config(**sizes))):
        found = _decoded(model, devices)
        assert found.weight_bytes in {_FLOAT * (whole + copies * (head // 2)) for copies in (1, 2)}  # and frequencies


@pytest.mark.parametrize(
    ("heads", "keys", "devices", "most"), [(32, 8, 3, 4), (8, 4, 3, 2), (12, 4, 6, 2), (6, 2, 4, 1), (24, 8, 5, 3)]
)
def test_a_device_has_the_keys_that_its_queries_ask_for(heads: int, keys: int, devices: int, most: int) -> None:
    """Of 32 heads of queries on three devices each has up to 11, and one of these parts reaches into four groups."""
    width, head, inner, vocabulary, tokens = heads * 4, 4, 60, 60, 37
    sizes: dict[str, Any] = {
        "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": 2, "num_attention_heads": heads,
        "num_key_value_heads": keys, "vocab_size": vocabulary, "tie_word_embeddings": False, **_TOKENS,
    }  # fmt: skip
    assert most_keys(heads, keys, devices) == most
    asked, columns = _up(heads, devices) * head, _up(inner, devices)
    layer = width * (asked + 2 * most * head) + asked * width + 3 * width * columns + 2 * width
    whole = 2 * layer + width + vocabulary * width + _up(vocabulary, devices) * width
    held = 2 * 2 * 2 * most * head * _FLOAT  # layers, keys and values, batch
    for model in (LlamaForCausalLM(LlamaConfig(**sizes)), Phi3ForCausalLM(Phi3Config(**sizes))):
        found = _decoded(model, devices)
        assert found.weight_bytes in {_FLOAT * (whole + copies * (head // 2)) for copies in (1, 2)}
        assert found.kv_cache_bytes is not None
        assert tokens * held <= found.kv_cache_bytes <= (tokens + 1) * held * 3 // 2  # one layer's is there twice


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_attention_without_a_kernel_is_split_by_the_heads_of_queries(devices: int) -> None:
    """Gemma 2 caps its scores, which it multiplies one by one: two heads of keys do not limit six of queries."""
    width, heads, keys, head, inner, vocabulary = 48, 6, 2, 10, 96, 96
    config = Gemma2Config(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=2, num_attention_heads=heads, head_dim=head,
        num_key_value_heads=keys, vocab_size=vocabulary, query_pre_attn_scalar=head, **_TOKENS,
    )  # fmt: skip
    asked, kept = _up(heads, devices) * head, most_keys(heads, keys, devices) * head
    layer = width * (asked + 2 * kept) + asked * width + 3 * width * inner // devices + 4 * width
    found = _decoded(Gemma2ForCausalLM(config), devices)
    whole = 2 * layer + width + vocabulary * width
    numbers = {whole + copies * (head // 2) + scales for copies in (1, 2) for scales in (0, 1)}
    assert found.weight_bytes in {_FLOAT * one for one in numbers}


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_fused_projections_with_biases_are_split_by_heads(devices: int) -> None:
    width, heads, head, inner, vocabulary, positions = 48, 6, 8, 192, 101, 64
    config = GPT2Config(
        n_embd=width,
        n_head=heads,
        n_layer=2,
        vocab_size=vocabulary,
        n_positions=positions,
        bos_token_id=1,
        eos_token_id=2,
    )
    asked, columns = _up(heads, devices) * head, _up(inner, devices)
    layer = (
        3 * asked * (width + 1) + asked * width + width + columns * (width + 1) + columns * width + width + 4 * width
    )
    found = _decoded(GPT2LMHeadModel(config), devices)
    assert found.weight_bytes == _FLOAT * (2 * layer + 2 * width + (vocabulary + positions) * width)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_each_device_has_columns_of_every_expert(devices: int) -> None:
    """Five experts do not divide, and need not: each is split as an MLP is. The router is whole on each device."""
    width, heads, keys, head, inner, vocabulary, experts = 48, 6, 2, 8, 52, 101, 5
    config = MixtralConfig(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=2, num_attention_heads=heads,
        num_key_value_heads=keys, vocab_size=vocabulary, num_local_experts=experts, num_experts_per_tok=2,
        sliding_window=None, tie_word_embeddings=False, **_TOKENS,
    )  # fmt: skip
    asked, kept, columns = _up(heads, devices) * head, most_keys(heads, keys, devices) * head, _up(inner, devices)
    attention = width * (asked + 2 * kept) + asked * width
    layer = attention + experts * 3 * width * columns + experts * width + 2 * width
    whole = 2 * layer + width + vocabulary * width + _up(vocabulary, devices) * width
    found = _decoded(MixtralForCausalLM(config), devices)
    assert found.weight_bytes in {_FLOAT * (whole + copies * (head // 2)) for copies in (1, 2)}


class _WrittenOut(nn.Module):
    """Attention of an encoder as image models write it: one projection, no kernel and no cache."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.projected = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, length, width = tokens.shape
        parts = self.projected(tokens).reshape(batch, length, 3, self.heads, width // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (queries * 0.3) @ keys.transpose(-2, -1)
        return self.out((scores.softmax(-1) @ values).transpose(1, 2).reshape(batch, length, width))


@pytest.mark.parametrize("devices", [2, 3, 5, 7, 8, 13])
def test_attention_that_is_written_out_without_a_cache_is_split_by_heads(devices: int) -> None:
    width, heads = 120, 12
    found = _split(capture(_WrittenOut(width, heads), torch.ones(2, 16, width)), devices)
    columns = _up(heads, devices) * (width // heads)
    assert found.weight_bytes == _FLOAT * (3 * columns * (width + 1) + columns * width + width)


@pytest.mark.parametrize("devices", [2, 3, 4, 5])
def test_a_bias_that_is_added_by_an_op_of_its_own_is_split_with_its_columns(devices: int) -> None:
    """nn.MultiheadAttention adds that of its projections so, as it reads tokens before the batch."""
    width, heads = 120, 12

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(width, heads, batch_first=True)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.inner(tokens, tokens, tokens, need_weights=False)[0]

    found = _split(capture(Attention().train(), torch.ones(2, 16, width)), devices)
    columns = _up(heads, devices) * (width // heads)
    assert found.weight_bytes == _FLOAT * (3 * columns * (width + 1) + columns * width + width)


def test_ops_with_weights_that_are_not_split_are_named() -> None:
    found = _split(capture(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)), torch.ones(2, 3, 9, 9)), 2)
    assert found.notes == (
        "not split, so that each device does all of it and holds its weights: aten.convolution.default (2 calls)",
    )

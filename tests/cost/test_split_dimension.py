"""What devices exchange where an op works over the dimension that they share, and which data and weights are whole."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    Gemma3ForCausalLM,
    Gemma3nForCausalLM,
    Gemma3nTextConfig,
    Gemma3TextConfig,
    T5Config,
    T5ForConditionalGeneration,
)

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.scaling import split_over
from torchstone.models import load
from torchstone.models.inputs import InputOptions
from torchstone.record.cost import CostTable, TensorParallel

_FLOAT = 4
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


class _Between(nn.Module):
    """A function of what one projection gives, and a second projection."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.first = nn.Linear(64, 256, bias=False)
        self.second = nn.Linear(256, 32, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.function(self.first(x)))


class _OneHead(nn.Module):
    """Attention without heads, as image models write it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.q(x) @ self.k(x).transpose(-1, -2)
        return self.o(scores.softmax(-1) @ self.v(x))


class _MixedTokens(nn.Module):
    """A weight that is multiplied with tokens, between two that are multiplied with columns."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(64, 128, bias=False)
        self.tokens = nn.Linear(16, 16, bias=False)
        self.narrow = nn.Linear(128, 64, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.tokens(self.wide(x).transpose(1, 2)).transpose(1, 2)
        return self.narrow(functional.relu(mixed))


class _Contrast(nn.Module):
    """Two projections whose products are compared, as CLIP does."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(64, 32, bias=False), nn.Linear(48, 32, bias=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return functional.normalize(self.left(x)) @ functional.normalize(self.right(y)).T


def _split(model: nn.Module, devices: int, *inputs: Tensor) -> TensorParallel:
    trace = capture(model, inputs[0] if len(inputs) == 1 else inputs)
    assert trace.failure is None
    return split_over(trace, price(trace), devices)


def _sent(found: TensorParallel) -> Counter[tuple[str, int]]:
    """How often each kind of exchange sends how many bytes of data in total."""
    return Counter((one.kind, one.bytes_each) for one in found.collectives for _ in range(one.calls))


def _summed(elements: int, devices: int) -> tuple[str, int]:
    return "all-reduce", 2 * (elements * _FLOAT * (devices - 1) // devices)


def _gathered(elements: int, devices: int) -> tuple[str, int]:
    return "all-gather", elements * _FLOAT * (devices - 1) // devices


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1),
        lambda x: x.log_softmax(1),
        lambda x: x.cumsum(-1),
        lambda x: x / x.std(-1, keepdim=True),
        lambda x: functional.group_norm(x, 1),
        lambda x: functional.layer_norm(x, (256,)),
        lambda x: x.sort(-1).values,
    ],
    ids=["softmax", "log_softmax", "cumsum", "std", "group_norm", "layer_norm", "sort"],
)
def test_what_needs_all_columns_gathers_them(function: Callable[[Tensor], Tensor], devices: int) -> None:
    sent = _sent(_split(_Between(function), devices, torch.ones(5, 64)))
    assert sent[_gathered(5 * 256, devices)] == 1
    assert sent.total() == 2  # and the second projection, or its result


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize(
    "function",
    [
        functional.normalize,
        lambda x: x * x.pow(2).sum(-1, keepdim=True).rsqrt(),
        lambda x: x - x.amax(1, keepdim=True),
    ],
    ids=["norm", "sum", "amax"],
)
def test_a_reduction_over_the_columns_exchanges_its_result(function: Callable[[Tensor], Tensor], devices: int) -> None:
    sent = _sent(_split(_Between(function), devices, torch.ones(5, 64)))
    assert sent == Counter([_summed(5, devices), _summed(5 * 32, devices)])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(0),
        lambda x: x - x.mean(0),
        lambda x: functional.group_norm(x, 8),
        lambda x: x.sort(0).values,
    ],
    ids=["softmax", "mean", "groups", "sort"],
)
def test_what_works_over_another_dimension_exchanges_nothing(function: Callable[[Tensor], Tensor]) -> None:
    assert _sent(_split(_Between(function), 2, torch.ones(5, 64))) == Counter([_summed(5 * 32, 2)])


@pytest.mark.parametrize(("batch", "tokens", "width"), [(2, 16, 64), (1, 64, 64), (3, 5, 16)])
@pytest.mark.parametrize("devices", [2, 4])
def test_attention_without_heads_adds_up_its_scores(devices: int, batch: int, tokens: int, width: int) -> None:
    found = _split(_OneHead(width), devices, torch.ones(batch, tokens, width))
    expected = Counter([_summed(batch * tokens * tokens, devices), _summed(batch * tokens * width, devices)])
    assert _sent(found) == expected
    assert found.weight_bytes == _FLOAT * 4 * width * width // devices


def test_a_weight_between_tokens_is_whole_on_each_device() -> None:
    found = _split(_MixedTokens(), 2, torch.ones(2, 16, 64))
    assert _sent(found) == Counter([_summed(2 * 16 * 64, 2)])
    assert found.weight_bytes == _FLOAT * (2 * 64 * 128 // 2 + 16 * 16)
    matmuls = 2 * 2 * 16 * (2 * 64 * 128 + 16 * 128)
    assert matmuls / 2 <= found.flops <= matmuls / 2 + 2 * 16 * 128


def test_products_of_two_projections_are_added_up() -> None:
    sent = _sent(_split(_Contrast(), 2, torch.ones(5, 64), torch.ones(7, 48)))
    assert sent == Counter([_summed(5, 2), _summed(7, 2), _summed(5 * 7, 2)])


def test_block_diagonal_matrices_are_split_by_blocks() -> None:
    """The gates of RecurrentGemma have a matrix for each head: a device has those of its heads, and sends nothing."""
    model, inputs = load("tiny:recurrent_gemma", options=InputOptions(batch_size=2, seq_len=16))
    trace = capture(model, inputs)
    found = split_over(trace, price(trace), 2)
    modules = {one.module.rpartition(".")[2] for one in found.collectives if one.kind == "all-reduce"}
    assert modules == {"linear_out", "down_proj", "o_proj"}


def _costs(model: nn.Module, options: InputOptions, devices: int) -> tuple[CostTable, TensorParallel]:
    loaded, inputs = load(model.eval(), options=options)
    trace = capture(loaded, inputs)
    assert trace.failure is None
    table = price(trace)
    return table, split_over(trace, table, devices)


def _gemma(devices: int, heads: int, attention: str) -> Gemma3ForCausalLM:
    """A model with the sizes of one device; its only head of keys is on all of them."""
    config = Gemma3TextConfig(
        hidden_size=64, intermediate_size=96 // devices, num_hidden_layers=2, num_attention_heads=heads // devices,
        num_key_value_heads=1, head_dim=8, vocab_size=64, query_pre_attn_scalar=8, **_TOKENS,
    )  # fmt: skip
    config._attn_implementation = attention
    return Gemma3ForCausalLM(config)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("devices", [2, 4])
def test_the_only_head_of_keys_is_whole_and_its_norm_sends_nothing(devices: int, phase: str, attention: str) -> None:
    sizes = {"cache_len": 37} if phase == "decode" else {"seq_len": 21}
    options = InputOptions(batch_size=3, phase=phase, **sizes)  # type: ignore[arg-type]
    _, found = _costs(_gemma(1, 8, attention), options, devices)
    one, _ = _costs(_gemma(devices, 8, attention), options, devices)
    tokens = 3 * sizes.get("seq_len", 1)
    assert Counter(one.kind for one in found.collectives for _ in range(one.calls)) == {
        "all-reduce": 4,
        "all-gather": 1,
    }
    assert found.peak_bytes == one.peak.total_bytes
    head = 2 * tokens * 64 * 64
    assert found.flops == one.totals.flops - head + head // devices  # the model of one device has all logits


@pytest.mark.parametrize("devices", [2, 4])
def test_an_encoder_is_split_where_a_step_does_not_read_it(devices: int) -> None:
    def model(parts: int) -> T5ForConditionalGeneration:
        config = T5Config(
            d_model=48, d_kv=8, d_ff=96 // parts, num_layers=3, num_decoder_layers=2, num_heads=8 // parts,
            vocab_size=64, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
        )  # fmt: skip
        return T5ForConditionalGeneration(config)

    options = InputOptions(batch_size=2, phase="decode", cache_len=11)
    _, found = _costs(model(1), options, devices)
    own = sum(one.numel() for one in model(devices).parameters())
    tables = 2 * 32 * (8 - 8 // devices)  # of relative positions: looked up in, so whole
    assert found.weight_bytes == _FLOAT * (own + tables)
    assert any("that this step does not read" in note for note in found.notes)


def test_streams_that_are_projected_and_normed_leave_the_heads_split() -> None:
    """Gemma 3n stacks projected streams with the first one: they are gathered for a norm, and whole from there on."""
    config = Gemma3nTextConfig(
        hidden_size=64, intermediate_size=[96, 96], num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, vocab_size=64, vocab_size_per_layer_input=64, hidden_size_per_layer_input=16, laurel_rank=8,
        num_kv_shared_layers=0, layer_types=["full_attention"] * 2, activation_sparsity_pattern=[0.0, 0.0], **_TOKENS,
    )  # fmt: skip
    table, found = _costs(Gemma3nForCausalLM(config), InputOptions(batch_size=2, phase="decode", cache_len=200), 2)
    assert found.kv_cache_bytes is not None
    assert found.kv_cache_bytes <= 0.51 * table.peak.kv_cache_bytes
    modules = Counter(one.module.rpartition(".")[2] for one in found.collectives if one.kind == "all-reduce")
    assert modules.keys() >= {"o_proj", "down_proj"}
    assert not modules.keys() & {"q_proj", "k_proj", "v_proj"}


@pytest.mark.parametrize(("name", "times"), [("mixtral", 1), ("qwen2_moe", 1), ("llama", 0)])
def test_it_is_said_that_experts_are_split_by_columns(name: str, times: int) -> None:
    model, inputs = load(f"tiny:{name}", options=InputOptions(batch_size=1, seq_len=8))
    trace = capture(model, inputs)
    notes = split_over(trace, price(trace), 2).notes
    assert sum("columns of every expert" in note for note in notes) == times

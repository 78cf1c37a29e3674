"""Memory and collectives of a split, against closed forms and against processes that really split the model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Starcoder2Config,
    Starcoder2ForCausalLM,
)

from tests.cost.head_placement import most_keys
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.roofline import find_hardware, predict
from torchstone.cost.scaling import split_over
from torchstone.models import load
from torchstone.models.inputs import InputOptions
from torchstone.record.cost import TensorParallel
from torchstone.workflows.cost import Optimizer, PricingOptions, price_trace

_FLOAT = 4
_PROCESS = Path(__file__).parent / "split_process.py"


def _llama(kv_heads: int) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=kv_heads,
        vocab_size=128, tie_word_embeddings=False,
    )  # fmt: skip


def _split(model: object, options: InputOptions, devices: int) -> TensorParallel:
    loaded, inputs = load(model, options=options)  # type: ignore[arg-type]
    trace = capture(loaded, inputs)
    assert trace.failure is None
    return split_over(trace, price(trace), devices)


@pytest.mark.parametrize("kv_heads", [1, 2, 8])
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_weights_are_split_and_key_heads_are_repeated_where_there_are_too_few(devices: int, kv_heads: int) -> None:
    config = _llama(kv_heads)
    found = _split(LlamaForCausalLM(config), InputOptions(batch_size=3, seq_len=5), devices)
    width, inner, vocabulary, head = 64, 96, 128, 8
    queries = 2 * width * width  # and the output projection
    keys = 2 * width * kv_heads * head
    own_heads = max(kv_heads // devices, 1)
    layer = (queries + 3 * width * inner) // devices + keys * own_heads // kv_heads + 2 * width
    whole = vocabulary * width + width + head // 2  # embedding, last norm, rotary frequencies
    repeated = head // 2  # transformers holds the frequencies twice
    assert found.weight_bytes in {
        _FLOAT * (3 * layer + whole + extra + vocabulary * width // devices) for extra in (0, repeated)
    }


@pytest.mark.parametrize("cache", [None, "expanded", "absorbed"])
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_latent_attention_is_split_by_heads(devices: int, cache: str | None) -> None:
    """The projections to latent rows are gathered for their norms; rows are whole on each device, heads are not."""
    layers, width, inner, vocabulary, heads, tokens = 3, 64, 96, 128, 8, 500
    asked, rank, plain, placed, own = 24, 16, 8, 4, 12
    config = DeepseekV3Config(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=heads, q_lora_rank=asked, kv_lora_rank=rank, qk_nope_head_dim=plain,
        qk_rope_head_dim=placed, v_head_dim=own, vocab_size=vocabulary, first_k_dense_replace=layers,
        tie_word_embeddings=False,
    )  # fmt: skip
    options = InputOptions(batch_size=3, phase="decode", cache_len=tokens, cache=cache)
    found = _split(DeepseekV3ForCausalLM(config), options, devices)
    counted = {"all-reduce": 0, "all-gather": 0}
    for one in found.collectives:
        counted[one.kind] += one.calls
    assert counted == {"all-reduce": 2 * layers, "all-gather": 2 * layers + 1}
    matrices = heads * (asked * (plain + placed) + rank * (plain + own) + own * width)
    split = layers * (matrices + 3 * width * inner) + vocabulary * width
    rows = layers * width * (-(-asked // devices) + -(-(rank + placed) // devices))  # 20 columns on 8 devices: 3
    norms = layers * (asked + rank + 2 * width) + width
    assert found.weight_bytes in {
        _FLOAT * (split // devices + rows + norms + vocabulary * width + copies * placed // 2) for copies in (1, 2)
    }
    row = rank + placed if cache != "expanded" else heads // devices * (plain + placed + own)
    assert found.kv_cache_bytes is not None
    assert 3 * layers * tokens * row <= found.kv_cache_bytes / _FLOAT <= 3 * (layers + 1) * (tokens + 1) * row


def test_norms_over_all_heads_are_gathered_and_heads_stay_split() -> None:
    config = Olmo2Config(
        hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=8,
        vocab_size=128, tie_word_embeddings=False, pad_token_id=0,
    )  # fmt: skip
    found = _split(Olmo2ForCausalLM(config), InputOptions(batch_size=3, phase="decode", cache_len=500), 4)
    counted = {"all-reduce": 0, "all-gather": 0}
    for one in found.collectives:
        counted[one.kind] += one.calls
    assert counted == {"all-reduce": 2 * 3, "all-gather": 2 * 3 + 1}  # queries and keys of each layer, the logits
    assert found.kv_cache_bytes is not None
    assert 3 * 3 * 500 * 2 * 2 * 8 <= found.kv_cache_bytes / _FLOAT <= 3 * 4 * 501 * 2 * 2 * 8  # two heads


def test_one_column_is_split_by_rows_where_the_data_is_split() -> None:
    trace = capture(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)), torch.ones(3, 64))
    found = split_over(trace, price(trace), 4)
    assert [(one.kind, one.calls, one.bytes_each) for one in found.collectives] == [
        ("all-reduce", 1, 2 * (3 * 4 * 3 // 4))
    ]
    assert found.weight_bytes == _FLOAT * ((64 * 256 + 256 + 256) // 4 + 1)


def test_the_gate_of_a_shared_expert_is_not_split() -> None:
    """It has one column: the data that it scales stays whole, as do the layers after it."""
    found = _split("tiny:qwen2_moe", InputOptions(batch_size=2, seq_len=16), 2)
    reduced = {one.module for one in found.collectives if one.kind == "all-reduce"}
    assert {module.split(".", 3)[3] for module in reduced} == {"self_attn.o_proj", "mlp.shared_expert.down_proj"}
    gathered = [one for one in found.collectives if one.kind == "all-gather"]
    assert sum(one.calls for one in gathered) == 1  # the logits: routers are whole on each device


def test_a_norm_before_the_last_projection_of_a_mixer_leaves_it_split_by_rows() -> None:
    """Mamba-2: one sum for each layer, and the exchange that its gated norm needs."""
    found = _split("tiny:mamba2", InputOptions(batch_size=2, seq_len=16), 2)
    counted = {"all-reduce": 0, "all-gather": 0}
    for one in found.collectives:
        counted[one.kind] += one.calls
    assert counted == {"all-reduce": 2, "all-gather": 2 + 1}


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_biases_are_split_with_columns_and_repeated_beside_rows(devices: int) -> None:
    """As DTensor and Megatron hold them: what is added to a sum over all devices is whole on each of them."""
    width, heads, kv_heads, head, inner, vocabulary, layers = 96, 8, 4, 12, 240, 96, 2
    config = Starcoder2Config(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, vocab_size=vocabulary, use_bias=True, sliding_window=None,
        tie_word_embeddings=True, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    found = _split(Starcoder2ForCausalLM(config), InputOptions(batch_size=3, seq_len=5), devices)
    queries, keys = (-(-count // devices) * head for count in (heads, kv_heads))
    attention = (width + 1) * (queries + 2 * keys) + queries * width + width
    mlp = (width + 1) * inner // devices + inner // devices * width + width
    norms = (2 * layers + 1) * 2 * width
    frequencies = head // 2
    whole = layers * (attention + mlp) + norms + vocabulary * width
    assert found.weight_bytes in {_FLOAT * (whole + copies * frequencies) for copies in (1, 2)}


@pytest.mark.parametrize(("devices", "kv_heads"), [(2, 8), (8, 1), (4, 2), (3, 8), (3, 2), (5, 1), (16, 8)])
def test_the_device_with_most_heads_does_their_work(devices: int, kv_heads: int) -> None:
    """Heads are not divided: eight over three devices are three on one of them, and one head is on all of them."""
    tokens, layers, width, inner, vocabulary, head = 3 * 5, 3, 64, 96, 128, 8
    model, inputs = load(LlamaForCausalLM(_llama(kv_heads)), options=InputOptions(batch_size=3, seq_len=5))
    trace = capture(model, inputs)
    table = price(trace)
    found = split_over(trace, table, devices)
    queries, keys = -(-8 // devices), most_keys(8, kv_heads, devices)
    projections = 2 * tokens * width * head * (2 * queries + 2 * keys)
    scores = 2 * 2 * 3 * 5 * 5 * head * queries
    even = (layers * 3 * 2 * tokens * width * inner + 2 * tokens * width * vocabulary) / devices
    matmuls = layers * (projections + scores) + even
    other = table.totals.flops - table.totals.matmul_flops
    assert matmuls <= found.flops <= matmuls + other
    assert found.flops - matmuls >= other / devices - 1


@pytest.mark.parametrize(("devices", "kv_heads"), [(2, 8), (8, 8), (8, 2), (4, 1)])
def test_a_device_holds_the_cache_of_its_heads(devices: int, kv_heads: int) -> None:
    options = InputOptions(batch_size=3, phase="decode", cache_len=2000)
    found = _split(LlamaForCausalLM(_llama(kv_heads)), options, devices)
    heads = max(kv_heads // devices, 1)
    held = 3 * 2 * 3 * heads * 8 * _FLOAT * 2000  # layers, keys and values, batch
    assert found.kv_cache_bytes is not None
    # While one layer's cache grows by a token, it is there twice.
    assert held <= found.kv_cache_bytes <= held + held // 3 + 3 * 2 * 3 * heads * 8 * _FLOAT


def test_what_does_not_fit_alone_may_fit_when_split() -> None:
    model, inputs = load("meta-llama/Llama-3.1-70B", options=InputOptions(seq_len=8))
    trace = capture(model, inputs)
    table = price(trace)
    hardware = find_hardware("h100")
    alone = predict(trace, table, hardware)
    assert not alone.fits
    assert [split_over(trace, table, devices, alone).fits for devices in (1 + 1, 8)] == [True, True]
    assert split_over(trace, table, 2, predict(trace, table, find_hardware("n150"))).fits is False


@pytest.mark.parametrize(("optimizer", "states"), [("sgd", 0), ("momentum", 1), ("adam", 2)])
@pytest.mark.parametrize("devices", [2, 4])
def test_each_device_holds_the_states_of_its_parameters(devices: int, optimizer: Optimizer, states: int) -> None:
    width, inner = 64, 256
    layers = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))
    trace = capture(layers, torch.ones(3, width), backward=True)
    plain, trained = (
        price_trace(trace, PricingOptions(devices=devices, optimizer=one)).tensor_parallel for one in (None, optimizer)
    )
    assert plain is not None
    assert trained is not None
    own = 2 * width * inner // devices + inner // devices + width  # the bias of the second layer is whole
    assert trained.weight_bytes == plain.weight_bytes == own * _FLOAT
    assert (trained.peak_bytes or 0) - (plain.peak_bytes or 0) == states * own * _FLOAT


@pytest.mark.parametrize(("name", "chips"), [("n300", 2), ("t3k", 8), ("galaxy", 32)])
def test_a_split_is_over_the_chips_of_a_board(name: str, chips: int) -> None:
    options = PricingOptions(hardware=name, devices=chips)
    model, inputs = load("tiny:llama")
    trace = capture(model, inputs)
    table = price_trace(trace, options)
    assert table.prediction is not None
    assert table.tensor_parallel is not None
    assert table.tensor_parallel.memory_bytes == 12 * 2**30  # of one Wormhole chip
    whole, split = table.prediction.hardware, table.tensor_parallel
    assert whole.memory_bytes == chips * 12 * 2**30
    assert whole.link_bytes_per_s is not None
    # A small model is launched op by op: no chip is faster than all together.
    sent_s = sum(one.calls * max(one.bytes_each / whole.link_bytes_per_s, whole.launch_s) for one in split.collectives)
    assert split.seconds is not None
    assert split.seconds >= table.prediction.total_s + sent_s


@pytest.mark.heavy
@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("name", ["llama", "opt", "qwen3"])
def test_processes_exchange_and_hold_what_is_reported(name: str, devices: int, tmp_path: Path) -> None:
    """DTensor over gloo: each process counts its collectives and the bytes of its own parts of the weights."""
    done = subprocess.run(
        [sys.executable, str(_PROCESS), name, str(devices)],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    real = json.loads(done.stdout.splitlines()[-1])
    found = _split(f"tiny:{name}", InputOptions(batch_size=2, seq_len=16), devices)
    counted = {"all-reduce": 0, "all-gather": 0}
    for one in found.collectives:
        counted[one.kind] += one.calls
    assert counted == real["collectives"]
    # DTensor gives a head that is tied to the embedding a part of its own; here it is a part of the table.
    assert found.weight_bytes == pytest.approx(real["weight_bytes"] - real["tied_bytes"], rel=0.005)

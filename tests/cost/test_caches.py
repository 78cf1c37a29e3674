"""What is kept between two steps: closed forms from the configuration, for each way in which a cache is stored."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.formats import with_formats
from torchstone.errors import InputError, ModelInputsError
from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import load
from torchstone.record.cost import CachePartKind, Conventions, CostTable, Formats
from torchstone.report.cost_text import cache_text
from torchstone.workflows.cost import CostRequest, PricingOptions, cost_model, write_costs
from torchstone.workflows.model_source import ModelRequest

BATCH = 3


def cost(model: str, *, devices: int | None = None, **options: Any) -> CostTable:
    asked = InputOptions(phase="decode", batch_size=BATCH, **options)
    request = ModelRequest(model=model, options=asked)
    return cost_model(CostRequest(model=request, pricing=PricingOptions(devices=devices))).table


def kept(table: CostTable) -> int:
    assert table.cache is not None
    return table.cache.size_bytes


def config_of(model: str) -> Any:
    return load(model).model.config


def llama_row() -> int:
    """Bytes that all layers of the tiny model keep of one token of one sequence."""
    config = config_of("tiny:llama")
    head = config.hidden_size // config.num_attention_heads
    return int(config.num_hidden_layers * 2 * config.num_key_value_heads * head * 4)


@pytest.mark.parametrize(("filled", "room"), [(1, 2), (20, 64), (20, 21)])
def test_a_static_cache_takes_its_whole_room_whatever_is_filled(filled: int, room: int) -> None:
    table = cost("tiny:llama", cache="static", cache_len=filled, cache_size=room)

    assert kept(table) == BATCH * room * llama_row()
    counters = 2 * 8  # of each layer, beside it
    assert table.peak.kv_cache_bytes == kept(table) + counters  # it is written in place: no second copy
    assert table.cache is not None
    assert f"2 layers x {room} tokens" in cache_text(table.cache)


def test_a_model_that_reads_the_length_of_a_static_cache_finds_it() -> None:
    asked = InputOptions(phase="decode", cache="static", cache_len=11, cache_size=40)
    outcome = cost_model(CostRequest(model=ModelRequest(model="tiny:bart", options=asked)))
    assert outcome.trace.failure is None
    assert not outcome.trace.assumed


def test_one_token_is_not_called_tokens() -> None:
    table = cost("tiny:llama", cache="paged", block_size=1, cache_len=1)
    assert table.cache is not None
    text = cache_text(table.cache)
    assert "in blocks of 1 token: " in text
    assert text.endswith("2 layers x 1 token)")


def test_a_static_cache_has_room_for_the_new_token_by_default() -> None:
    assert kept(cost("tiny:llama", cache="static", cache_len=20)) == BATCH * 21 * llama_row()


@pytest.mark.parametrize(
    ("tokens", "block", "held"),
    [
        (1, 16, 16),
        (15, 16, 16),
        (16, 16, 16),
        (17, 16, 32),
        (33, 1, 33),
        (33, 32, 64),
        (33, 1000, 1000),
        (20, None, 32),
    ],
)
def test_a_paged_cache_takes_whole_blocks(tokens: int, block: int | None, held: int) -> None:
    table = cost("tiny:llama", cache="paged", cache_len=tokens, block_size=block)

    assert kept(table) == BATCH * held * llama_row()
    after = -(-(tokens + 1) // (block or 16)) * (block or 16)
    assert table.peak.kv_cache_bytes <= BATCH * after * llama_row()  # it grows in place, a layer at a time


@pytest.mark.parametrize(("block", "blocks"), [(5, 7), (16, 3), (32, 2), (33, 1), (64, 1)])
@pytest.mark.parametrize(("kv", "tile"), [("bfloat8_b", 1088), ("bfloat4_b", 576)])
def test_blocks_share_no_tiles_of_a_format(kv: str, tile: int, block: int, blocks: int) -> None:
    asked = InputOptions(phase="decode", batch_size=BATCH, cache_len=33, cache="paged", block_size=block)
    model, inputs = load("tiny:llama", options=asked)
    trace = with_formats(capture(model, inputs), Formats(kv_cache=kv))
    table = price(trace, Conventions(block_size=block))
    config = config_of("tiny:llama")
    tiles = -(-block // 32) * -(-config.head_dim // 32)
    rows = config.num_hidden_layers * 2 * BATCH * config.num_key_value_heads  # of keys and of values
    assert kept(table) == rows * blocks * tiles * tile


def test_blocks_change_memory_alone() -> None:
    grown, paged = (cost("tiny:llama", cache=kind, cache_len=33) for kind in ("dynamic", "paged"))
    assert grown.traffic == paged.traffic
    assert grown.totals.flops == paged.totals.flops
    assert kept(grown) == BATCH * 33 * llama_row()


def test_a_window_keeps_the_blocks_that_it_reaches_into() -> None:
    table = cost("openai/gpt-oss-20b", cache="paged", cache_len=500, block_size=16, layers=2)
    row = BATCH * 2 * 8 * 64 * 2  # keys and values, heads, width, bytes
    # Positions 373 to 499 are seen again: blocks 23 to 31 of 16 tokens, and all 32 of the layer without a window.
    assert {(part.kind, part.tokens): part.size_bytes for part in table.cache.parts} == {  # type: ignore[union-attr]
        (CachePartKind.WINDOW, 127): row * 9 * 16,
        (CachePartKind.FULL, 500): row * 32 * 16,
    }


@pytest.mark.parametrize("tokens", [1, 511, 512, 513])
@pytest.mark.parametrize(
    ("model", "layers", "own_global", "row", "global_row"),
    [
        ("google/gemma-3n-E2B", 20, 4, 2 * 2 * 256, 2 * 2 * 256),  # 30 layers, of which 10 share
        ("google/gemma-4-E2B-it", 15, 3, 2 * 1 * 256, 2 * 1 * 512),  # 35 layers, of which 20 share
    ],
)
def test_layers_that_share_keys_and_values_keep_none(
    model: str, layers: int, own_global: int, row: int, global_row: int, tokens: int
) -> None:
    """A window of 512 keeps 511 tokens between steps: the new one completes it."""
    table = cost(model, cache_len=tokens)

    numbers = own_global * global_row * tokens + (layers - own_global) * row * min(tokens, 511)
    assert kept(table) == BATCH * numbers * 2


def test_a_static_window_has_room_for_the_window() -> None:
    table = cost("openai/gpt-oss-20b", cache="static", cache_len=500, cache_size=1000, layers=2)
    assert kept(table) == BATCH * 2 * 8 * 64 * 2 * (128 + 1000)


@pytest.mark.parametrize("block", [None, 16])
def test_a_window_of_one_keeps_no_token(block: int | None) -> None:
    """The new token is all that it sees; transformers slices by minus zero, and keeps the whole sequence."""
    config = config_of("tiny:mistral")
    config.sliding_window = 1
    model = AutoModelForCausalLM.from_config(config).eval()
    cache = "dynamic" if block is None else "paged"
    options = InputOptions(batch_size=2, phase="decode", cache_len=33, cache=cache, block_size=block)
    trace = capture(*load(model, options=options))
    table = price(trace, Conventions(block_size=block))
    assert kept(table) == 0
    assert table.cache is not None
    assert [(part.kind, part.tokens) for part in table.cache.parts] == [("window", 0)]
    attended = [one.signature.input_specs[1].shape[2] for one in trace.ops if "attention" in one.op]
    assert attended == [1] * config.num_hidden_layers


def test_a_chunk_is_the_most_that_a_layer_with_chunks_keeps() -> None:
    config = config_of("tiny:llama4_text")
    chunk, head = config.attention_chunk_size, config.head_dim
    kinds = config.layer_types
    row = BATCH * 2 * config.num_key_value_heads * head * 4
    for tokens in (chunk - 2, chunk + 5):
        held = sum(min(tokens, chunk - 1) if kind == "chunked_attention" else tokens for kind in kinds)
        assert kept(cost("tiny:llama4_text", cache_len=tokens)) == row * held


def test_latent_attention_keeps_rows_or_on_request_what_they_expand_to() -> None:
    config = config_of("tiny:deepseek_v3")
    layers, heads, rotary = config.num_hidden_layers, config.num_attention_heads, config.qk_rope_head_dim
    latent, expanded = (cost("tiny:deepseek_v3", cache=kind, cache_len=9) for kind in (None, "expanded"))

    assert kept(latent) == BATCH * layers * 9 * (config.kv_lora_rank + rotary) * 4
    assert kept(expanded) == BATCH * layers * 9 * heads * (config.qk_nope_head_dim + rotary + config.v_head_dim) * 4
    assert expanded.totals.matmul_flops < latent.totals.matmul_flops  # earlier rows are not expanded again


def test_a_model_of_the_users_own_takes_each_form_of_latent_attention_in_turn() -> None:
    """The same object again and again: no form may stay from an earlier one."""
    model = load("tiny:deepseek_v3", device="cpu").model
    config = config_of("tiny:deepseek_v3")
    tokens, heads, rank = 20, config.num_attention_heads, config.kv_lora_rank
    plain, placed, own = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
    expanding = tokens * rank * (plain + own)  # the rows in the cache, of one head
    absorbing = (tokens + 1) * (2 * rank + placed) + rank * (plain + own) - (tokens + 1) * (plain + placed + own)
    asked = [None, "expanded", "absorbed", None, "absorbed", "expanded"]
    costs: dict[str | None, int] = {}
    for kind in asked:
        options = InputOptions(phase="decode", batch_size=BATCH, cache_len=tokens, cache=kind)
        table = price(capture(*load(model, options=options)))
        rows = heads * (plain + placed + own) if kind == "expanded" else rank + placed
        assert kept(table) == BATCH * config.num_hidden_layers * tokens * rows * 4
        assert costs.setdefault(kind, table.totals.matmul_flops) == table.totals.matmul_flops
    each = 2 * BATCH * config.num_hidden_layers * heads
    assert costs[None] - costs["expanded"] == each * expanding
    assert costs["absorbed"] - costs["expanded"] == each * (absorbing - rank * (plain + own))


def test_a_model_of_the_users_own_without_latent_attention_is_refused() -> None:
    model = load("tiny:llama", device="cpu").model
    with pytest.raises(ModelInputsError, match="LlamaForCausalLM has no latent attention"):
        load(model, options=InputOptions(phase="decode", cache_len=4, cache="absorbed"))


@pytest.mark.parametrize(
    "model", ["deepseek-ai/DeepSeek-V3", "moonshotai/Kimi-K2-Instruct", "deepseek-ai/DeepSeek-V3.2"]
)
def test_absorbed_latent_attention_saves_the_products_that_expand_rows(model: str) -> None:
    """For each head and token: what expands a row, and the product with it, against the product with the row."""
    layers, cached = 2, 1000
    latent, absorbed = (cost(model, cache=kind, cache_len=cached, layers=layers) for kind in (None, "absorbed"))
    config: Any = load(model, options=InputOptions(layers=layers)).model.config
    plain, placed, own = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
    rank, tokens = config.kv_lora_rank, cached + 1
    expanding = tokens * (rank * (plain + own) + (plain + placed) + own)
    absorbing = plain * rank + tokens * (rank + placed + rank) + rank * own

    saved = 2 * BATCH * layers * config.num_attention_heads * (expanding - absorbing)
    assert latent.totals.matmul_flops - absorbed.totals.matmul_flops == saved
    assert kept(absorbed) == kept(latent)
    assert absorbed.totals.parameter_bytes == latent.totals.parameter_bytes


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("tiny:llama", "static"),
        ("tiny:gemma2", "static"),
        ("tiny:t5", "static"),
        ("tiny:deepseek_v3", "static"),
        ("tiny:deepseek_v3", "expanded"),
        ("tiny:deepseek_v2", "expanded"),
        ("tiny:deepseek_v3", "absorbed"),
        ("tiny:deepseek_v2", "absorbed"),
        ("tiny:deepseek_v32", "absorbed"),
        ("tiny:kimi_linear", "absorbed"),
    ],
)
def test_the_answer_does_not_depend_on_how_the_cache_is_stored(model: str, kind: str) -> None:
    found = []
    for cache in ("dynamic", kind):
        options = InputOptions(phase="decode", cache_len=11, batch_size=2, cache=cache)
        built, inputs = load(model, device="cpu", options=options)
        with torch.no_grad():
            found.append(built(**inputs.kwargs).logits)
    torch.testing.assert_close(*found)


def test_a_mask_covers_the_room_where_positions_are_derived_from_it() -> None:
    """BLOOM adds distances to its scores, one for each place of the mask."""
    found = []
    for cache, size in (("dynamic", None), ("static", 30)):
        options = InputOptions(phase="decode", cache_len=11, batch_size=2, cache=cache, cache_size=size)
        built, inputs = load("tiny:bloom", device="cpu", options=options)
        trace = capture(built, inputs)
        assert trace.failure is None
        with torch.no_grad():
            found.append(built(**inputs.kwargs).logits)
    torch.testing.assert_close(*found)


def test_cross_attention_and_states_stand_apart() -> None:
    whisper = cost("openai/whisper-tiny", cache_len=50).cache
    assert whisper is not None
    assert {(part.kind, part.layers, part.tokens): part.size_bytes for part in whisper.parts} == {
        (CachePartKind.CROSS, 4, 1500): BATCH * 4 * 2 * 384 * 1500 * 4,
        (CachePartKind.FULL, 4, 50): BATCH * 4 * 2 * 384 * 50 * 4,
    }
    mamba = cost("state-spaces/mamba-130m-hf", cache_len=50).cache
    assert mamba is not None
    assert [(part.kind, part.tokens) for part in mamba.parts] == [(CachePartKind.STATE, None)]


def test_states_that_modules_keep_as_attributes_are_part_of_the_cache() -> None:
    config = config_of("tiny:recurrent_gemma")
    table = cost("tiny:recurrent_gemma", cache_len=11)
    blocks = [config.layers_block_type[layer] for layer in range(config.num_hidden_layers)]
    state = (
        config.lru_width * (config.conv1d_width - 1) + config.lru_width
    )  # columns of the convolution, the recurrence
    row = 2 * config.num_key_value_heads * config.hidden_size // config.num_attention_heads

    assert kept(table) == BATCH * 4 * sum(state if block == "recurrent" else 11 * row for block in blocks)
    assert table.peak.weights_bytes < table.totals.parameter_bytes + 10_000  # they are no weights


@pytest.mark.parametrize("model", ["tiny:dbrx", "tiny:nllb-moe", "tiny:moonshine"])
def test_a_step_that_routes_by_value_is_captured_without_values(model: str) -> None:
    asked = InputOptions(phase="decode", cache_len=11, batch_size=2)
    outcome = cost_model(CostRequest(model=ModelRequest(model=model, options=asked)))
    assert outcome.trace.failure is None
    assert outcome.table.cache is not None


@pytest.mark.parametrize(
    "model", ["tiny:switch_transformers", "tiny:jetmoe", "tiny:speecht5", "tiny:cpmant", "tiny:xlstm"]
)
def test_a_step_after_a_prefill_that_needs_values_costs_what_a_real_one_costs(model: str) -> None:
    options = InputOptions(phase="decode", cache_len=20)
    without = cost_model(CostRequest(model=ModelRequest(model=model, options=options)))
    really = price(capture(*load(model, device="cpu", options=options)[:2], "cpu"))

    assert without.trace.failure is None
    assert without.table.totals.flops == really.totals.flops
    assert without.table.cache is not None
    assert really.cache is not None
    assert without.table.cache.size_bytes == really.cache.size_bytes


def test_after_a_prompt_the_cache_is_what_the_prompt_left() -> None:
    options = InputOptions(seq_len=40, batch_size=BATCH)
    table = cost_model(CostRequest(model=ModelRequest(model="tiny:llama", options=options))).table
    assert table.cache is not None
    assert (table.cache.when, table.cache.size_bytes) == ("after the prompt", BATCH * 40 * llama_row())
    bert = cost_model(CostRequest(model=ModelRequest(model="tiny:bert"))).table
    assert bert.cache is None


def test_devices_hold_their_part_of_the_blocks() -> None:
    alone, split = (cost("tiny:llama", cache="paged", cache_len=20, devices=devices) for devices in (None, 2))
    assert split.tensor_parallel is not None
    assert split.tensor_parallel.kv_cache_bytes == alone.peak.kv_cache_bytes // 2


def test_a_saved_trace_is_priced_in_blocks_but_keeps_its_cache(tmp_path: Path) -> None:
    asked = InputOptions(phase="decode", batch_size=BATCH, cache_len=20)
    write_costs(tmp_path, cost_model(CostRequest(model=ModelRequest(model="tiny:llama", options=asked))))

    saved = ModelRequest(model=str(tmp_path), options=InputOptions(cache="paged", block_size=64))
    assert kept(cost_model(CostRequest(model=saved)).table) == BATCH * 64 * llama_row()
    with pytest.raises(ModelInputsError, match="finished run, so --batch-size, --phase, --cache cannot be changed"):
        cost(str(tmp_path), cache="static")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache": "ring"}, "unknown cache 'ring'; use dynamic, static, paged, expanded, absorbed"),
        ({"cache": "static"}, "--cache static applies only to the decode phase; add --phase decode"),
        ({"cache_size": 8}, "--cache-size is the size of a static cache; add --cache static"),
        ({"block_size": 8, "cache": "dynamic"}, "--block-size is the size of a paged cache; add --cache paged"),
        ({"block_size": 0, "cache": "paged"}, "--block-size must be at least 1, not 0"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        InputOptions(**options)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("tiny:llama", {"cache": "static", "cache_size": 20, "cache_len": 20}, "give 21 or more"),
        ("tiny:llama", {"cache": "expanded"}, "LlamaForCausalLM has no latent attention"),
        ("tiny:llama", {"cache": "absorbed"}, "LlamaForCausalLM has no latent attention"),
        ("tiny:mamba", {"cache": "static"}, "MambaForCausalLM keeps states in cache_params"),
        ("tiny:recurrent_gemma", {"cache": "static"}, "RecurrentGemmaForCausalLM does not support a static cache"),
    ],
)
def test_a_cache_that_a_model_cannot_have_is_refused(model: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        cost(model, **options)

"""What a step writes to a cache, against what the model's own code computes anew, by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import load
from torchstone.record.codec import decode, encode
from torchstone.record.cost import CachePartKind, Category, Conventions, CostTable
from torchstone.record.trace import Trace

_BATCH, _HEADS, _TOKENS, _HEAD, _FLOAT = 3, 2, 10, 8, 4
_WIDTH = _HEADS * _HEAD
_ROW = _BATCH * _HEADS * _HEAD * _FLOAT  # one token of keys, or of values
_attend = nn.functional.scaled_dot_product_attention


class _Decoder(nn.Module):
    """One token, and a cache of keys and values that is exchanged as `renew` says."""

    def __init__(self, renew: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.project = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.renew = renew

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        query, key, value = self.project(x).view(_BATCH, 1, 3, _HEADS, _HEAD).permute(2, 0, 3, 1, 4)
        keys, values = self.renew(past[0], key), self.renew(past[1], value)
        return _attend(query, keys.float(), values.float()), (keys, values)


def _append(old: Tensor, new: Tensor) -> Tensor:
    return torch.cat([old, new], 2)


def _roll(old: Tensor, new: Tensor) -> Tensor:
    return torch.cat([old[:, :, 1:], new], 2)


def _keep_the_last(old: Tensor, new: Tensor) -> Tensor:
    return torch.cat([old, new], 2)[:, :, -_TOKENS:].contiguous()


def _shift_and_put(old: Tensor, new: Tensor) -> Tensor:
    shifted = torch.roll(old, -1, 2)
    shifted[:, :, -1:] = new
    return shifted


def _put(old: Tensor, new: Tensor) -> Tensor:
    return old.index_copy(2, torch.tensor([4]), new)


def _fill_a_new_one(old: Tensor, new: Tensor) -> Tensor:
    whole = torch.zeros(_BATCH, _HEADS, _TOKENS + 1, _HEAD)
    whole[:, :, :-1] = old
    whole[:, :, -1:] = new
    return whole


def _compute(old: Tensor, new: Tensor) -> Tensor:
    return 0.5 * old + new


def _step(model: nn.Module, *inputs: object) -> CostTable:
    return price(capture(model, inputs))


def _written(table: CostTable) -> int:
    return table.traffic.compulsory.written_bytes[Category.KV_CACHE]


@pytest.mark.parametrize(
    ("renew", "rows"),
    [(_append, 1), (_roll, 1), (_keep_the_last, 1), (_shift_and_put, 1), (_put, 1), (_fill_a_new_one, 1),
     (_compute, _TOKENS)],
)  # fmt: skip
def test_a_step_writes_what_is_new_in_the_cache_that_it_gives_back(
    renew: Callable[[Tensor, Tensor], Tensor], rows: int
) -> None:
    past = (torch.randn(_BATCH, _HEADS, _TOKENS, _HEAD), torch.randn(_BATCH, _HEADS, _TOKENS, _HEAD))
    table = _step(_Decoder(renew), torch.randn(_BATCH, 1, _WIDTH), past)
    assert _written(table) == 2 * rows * _ROW


class _Recurs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(_WIDTH, _WIDTH)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self.cell(x, state)
        return state * 2, state


def test_a_state_that_is_computed_anew_is_written_as_a_whole() -> None:
    state = torch.randn(_BATCH, _WIDTH)
    table = _step(_Recurs(), torch.randn(_BATCH, _WIDTH), state)
    assert table.cache is not None
    assert (table.cache.size_bytes, _written(table)) == (state.nbytes, state.nbytes)


def test_the_states_of_linear_attention_are_written_in_every_step() -> None:
    options = InputOptions(phase="decode", batch_size=_BATCH, cache_len=_TOKENS)
    model, inputs = load("tiny:minimax", options=options)
    states = [one for one in inputs.kwargs["past_key_values"].linear_cache if isinstance(one, Tensor)]
    layers = [one for one in inputs.kwargs["past_key_values"].layers if one.is_initialized and one.keys.numel()]
    rows = sum(one.keys.nbytes + one.values.nbytes for one in layers) // _TOKENS
    assert states
    assert _written(price(capture(model, inputs))) == sum(one.nbytes for one in states) + rows


def test_a_cache_of_integers_is_a_cache_and_counters_are_none() -> None:
    class Quantized(nn.Module):
        def forward(self, x: Tensor, kv_cache: Tensor, cache_len: Tensor) -> tuple[Tensor, Tensor]:
            kv_cache = torch.cat([kv_cache, (x * 10).round().to(torch.int8)], 2)
            return kv_cache.float().sum(2) + cache_len, kv_cache

    cache = torch.ones(_BATCH, _HEADS, _TOKENS, _HEAD, dtype=torch.int8)
    table = _step(Quantized(), torch.randn(_BATCH, _HEADS, 1, _HEAD), cache, torch.tensor(_TOKENS))
    assert table.cache is not None
    assert (table.cache.size_bytes, _written(table)) == (cache.nbytes, _BATCH * _HEADS * _HEAD)


def test_keys_that_are_their_own_values_are_kept_once() -> None:
    options = InputOptions(phase="decode", batch_size=_BATCH, cache_len=7)
    model, inputs = load("tiny:deepseek_v4", options=options)
    real, _ = load("tiny:deepseek_v4", device="cpu")
    with torch.no_grad():
        cache = real(input_ids=torch.full((_BATCH, 7), 9), use_cache=True).past_key_values
    held = [
        part
        for layer in cache.layers
        for field in vars(layer).values()
        for part in (field.values() if isinstance(field, dict) else [field])
        if isinstance(part, Tensor) and part.is_floating_point()
    ]
    table = price(capture(model, inputs))
    assert table.cache is not None
    assert any(layer.keys is layer.values for layer in cache.layers)
    assert table.cache.size_bytes == sum({id(one): one.nbytes for one in held}.values())


def test_a_decoder_attends_to_the_output_of_its_encoder_that_it_asks_for() -> None:
    """PP-FormulaNet attends to the pooled output, not to the last hidden state."""
    options = InputOptions(phase="decode", batch_size=_BATCH, cache_len=_TOKENS)
    table = price(capture(*load("tiny:pp_formulanet", options=options)))
    skipped = [one.path for one in table.modules if one.path.endswith("encoder_attn") and not one.flops]
    assert skipped == []
    assert table.cache is not None
    assert table.traffic.compulsory.read_bytes[Category.KV_CACHE] == table.cache.size_bytes


class _Replaces(nn.Module):
    """An accumulator that the step puts in the place of the old one, or writes to."""

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        self.recurrent_states = torch.zeros(_BATCH, _WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        if self.in_place:
            self.recurrent_states.copy_(0.5 * self.recurrent_states + x)
        else:
            self.recurrent_states = 0.5 * self.recurrent_states + x
        return 2 * self.recurrent_states


@pytest.mark.parametrize("in_place", [True, False])
def test_states_that_modules_replace_are_written(*, in_place: bool) -> None:
    trace = capture(_Replaces(in_place=in_place), torch.randn(_BATCH, _WIDTH))
    size = _BATCH * _WIDTH * _FLOAT
    for table in (price(trace), price(decode(encode(trace), Trace, origin="here"))):
        assert table.cache is not None
        assert (table.cache.size_bytes, _written(table)) == (size, size)
        assert not any("not in the bytes written" in note for note in table.notes)


def test_a_trace_that_does_not_say_what_modules_hold_at_the_end_says_so() -> None:
    trace = capture(_Replaces(in_place=False), torch.randn(_BATCH, _WIDTH))
    older = replace(trace, recorded_tensors=replace(trace.recorded_tensors, left=None))
    table = price(older)
    assert _written(table) == 0
    assert any("not in the bytes written" in note for note in table.notes)


@pytest.mark.parametrize("tokens", [1, 7, 16, 17, 100])
def test_recurrent_gemma_writes_its_states_and_a_row_for_each_layer_with_a_window(tokens: int) -> None:
    """It keeps states as attributes of modules, and does not give back the cache that it is given."""
    options = InputOptions(phase="decode", batch_size=_BATCH, cache_len=tokens)
    model, inputs = load("tiny:recurrent_gemma", options=options)
    config: Any = model.config
    row = 2 * config.num_key_value_heads * config.hidden_size // config.num_attention_heads
    state = config.lru_width  # of the recurrence; the convolution adds one column to those that it keeps
    blocks = [config.layers_block_type[layer] for layer in range(config.num_hidden_layers)]
    expected = sum(2 * state if block == "recurrent" else row for block in blocks)
    assert {"recurrent", "attention"} == set(blocks)
    assert _written(price(capture(model, inputs))) == _BATCH * _FLOAT * expected


def test_what_a_prompt_leaves_in_modules_is_kept_after_it() -> None:
    model, inputs = load("tiny:recurrent_gemma", options=InputOptions(batch_size=_BATCH, seq_len=5))
    config: Any = model.config
    blocks = [config.layers_block_type[layer] for layer in range(config.num_hidden_layers)]
    state = config.lru_width * config.conv1d_width * blocks.count("recurrent")
    table = price(capture(model, inputs))
    assert table.cache is not None
    assert table.cache.when == "after the prompt"
    kept = {part.kind: part.size_bytes for part in table.cache.parts}
    assert kept[CachePartKind.STATE] == _BATCH * _FLOAT * state


@pytest.mark.parametrize(("block", "before", "after"), [(1, 40, 41), (16, 48, 48), (40, 40, 80), (41, 41, 41)])
def test_a_cache_that_is_not_given_back_grows_by_a_block_at_most(block: int, before: int, after: int) -> None:
    options = InputOptions(phase="decode", batch_size=_BATCH, cache_len=40, cache="paged", block_size=block)
    model, inputs = load("tiny:recurrent_gemma", options=options)
    config: Any = model.config
    row = 2 * config.num_key_value_heads * config.hidden_size // config.num_attention_heads
    recurrent = config.layers_block_type[: config.num_hidden_layers].count("recurrent")
    columns = config.conv1d_width + 1  # of the convolution and the recurrence; the old ones are gone at the peak
    states = recurrent * config.lru_width * columns * _BATCH * _FLOAT
    table = price(capture(model, inputs), Conventions(block_size=block))
    assert config.num_hidden_layers - recurrent == 1
    assert table.cache is not None
    kept = {part.kind: part.size_bytes for part in table.cache.parts}
    assert kept[CachePartKind.WINDOW] == _BATCH * _FLOAT * row * before
    counter = 8
    assert table.peak.kv_cache_bytes == _BATCH * _FLOAT * row * after + states + counter


class _Decays(nn.Module):
    """Writes to its state twice."""

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        return state.mul_(0.5).add_(x).sum()


def test_a_state_that_is_written_twice_counts_once() -> None:
    state = torch.randn(_BATCH, _WIDTH)
    assert _written(_step(_Decays(), torch.randn(_BATCH, _WIDTH), state)) == state.nbytes


class _KeepsToItself(nn.Module):
    """Appends to the cache that it is given, and gives back the result alone."""

    def forward(self, x: Tensor, kv_cache: list[Tensor]) -> Tensor:
        kv_cache[0] = torch.cat([kv_cache[0], x], 2)
        return _attend(x, kv_cache[0], kv_cache[0])


def test_a_cache_that_is_not_given_back_is_written_as_one_that_is() -> None:
    cache = torch.randn(_BATCH, _HEADS, _TOKENS, _HEAD)
    table = _step(_KeepsToItself(), torch.randn(_BATCH, _HEADS, 1, _HEAD), [cache])
    assert table.cache is not None
    assert (table.cache.size_bytes, _written(table)) == (cache.nbytes, _ROW)


@pytest.mark.parametrize("tokens", [1, 126, 127, 128, 129, 300])
def test_a_static_window_takes_one_new_row_wherever_it_stands(tokens: int) -> None:
    """Once it is full, transformers moves all rows by one: those that were there are not new."""
    options = InputOptions(phase="decode", batch_size=_BATCH, cache_len=tokens, cache="static", cache_size=301)
    model, inputs = load("tiny:gpt_oss", options=options)
    config: Any = model.config
    assert config.sliding_window == 128
    row = config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim * _BATCH * _FLOAT
    counters = 8 * config.num_hidden_layers
    assert row <= _written(price(capture(model, inputs))) <= row + counters


class Copied(nn.Module):
    """Copies its cache as often as code may that converts it for each of many layers."""

    def forward(self, x: Tensor, past_key_values: Tensor) -> tuple[Tensor, Tensor]:
        cache = past_key_values
        for _ in range(1500):
            cache = cache.clone()
        return x + 1, torch.cat([cache, x[:, None]], 2)


def test_a_long_chain_of_copies_is_followed_to_its_end() -> None:
    trace = capture(Copied(), (torch.zeros(2, 1, 8), torch.zeros(2, 1, 5, 8)))

    assert _written(price(trace)) == 2 * 8 * _FLOAT

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from tests.cost.calls import trace_of
from torchstone.capture import capture
from torchstone.cost.boundary_tensors import find_ends, fold_numbers
from torchstone.cost.storages import find_storages
from torchstone.record.cost import Category
from torchstone.record.trace import Trace


def tiny_llama(*, cached: int = 0) -> Trace:
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    inputs = {"input_ids": torch.zeros(1, 1 if cached else 6, dtype=torch.long)}
    if cached:
        with torch.no_grad():
            inputs["past_key_values"] = model(torch.zeros(1, cached, dtype=torch.long)).past_key_values
    return capture(model, inputs)


def total(trace: Trace, category: Category) -> int:
    storages = find_storages(trace)
    return sum(size for size, one in zip(storages.sizes, storages.categories, strict=True) if one is category)


def test_keys_and_values_that_a_model_gives_back_are_its_cache() -> None:
    assert total(tiny_llama(), Category.KV_CACHE) == 2 * 2 * (2 * 6 * 4) * 4


def test_a_cache_that_comes_in_counts_beside_the_one_that_goes_out() -> None:
    trace = tiny_llama(cached=5)
    assert total(trace, Category.KV_CACHE) == 2 * 2 * (2 * 5 * 4) * 4 + 2 * 2 * (2 * 6 * 4) * 4
    assert len(find_storages(trace).cache_inputs) == 4


def test_tied_weights_are_one_piece_of_memory() -> None:
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    trace = capture(nn.Sequential(first, second), torch.ones(1, 4))
    assert total(trace, Category.WEIGHTS) == 64


def test_views_share_the_memory_they_look_at() -> None:
    trace = trace_of(lambda x: (x + 1).t()[1:], torch.ones(4, 8))
    assert sorted(find_storages(trace).sizes) == [128, 128]


def test_a_trace_without_calls_has_no_memory() -> None:
    empty = Trace(provenance=trace_of(torch.neg, torch.ones(1)).provenance, modules=())
    assert find_storages(empty).sizes == []


def test_what_came_in_has_its_name_and_size() -> None:
    ends = find_ends(trace_of(torch.neg, torch.ones(4)))

    (storage,) = ends.names
    assert ends.sizes == {storage: 16}
    assert not ends.weights
    assert len(ends.kept) == 1


def test_caches_are_told_from_other_inputs_and_outputs() -> None:
    ends = find_ends(tiny_llama(cached=5))

    assert len(ends.caches_in) == len(ends.caches_out) == 4
    assert ends.caches_out < ends.kept
    assert all(ends.names[storage].startswith("past_key_values[") for storage in ends.caches_in)


def test_a_trace_without_calls_has_no_ends() -> None:
    empty = Trace(provenance=trace_of(torch.neg, torch.ones(1)).provenance, modules=())

    assert find_ends(empty).kept == frozenset()


def test_numbers_of_layers_are_left_open() -> None:
    assert fold_numbers("model.layers.12.mlp.fc1") == "model.layers.*.mlp.fc1"
    assert fold_numbers("past_key_values[12]") == "past_key_values[*]"
    assert fold_numbers("head") == "head"

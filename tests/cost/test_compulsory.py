import torch
from torch import nn

from tests.cost.test_storages import tiny_llama
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.record.cost import Category


def test_weights_inputs_and_outputs_move_once() -> None:
    model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU(), nn.Linear(16, 4, bias=False))
    found = price(capture(model, torch.ones(2, 8))).traffic.compulsory
    assert found.read_bytes == {Category.WEIGHTS: (128 + 64) * 4, Category.KV_CACHE: 0, Category.ACTIVATIONS: 64}
    assert found.written_bytes == {Category.WEIGHTS: 0, Category.KV_CACHE: 0, Category.ACTIVATIONS: 32}


def test_a_weight_used_twice_is_read_once() -> None:
    layer = nn.Linear(8, 8, bias=False)
    once, twice = (price(capture(nn.Sequential(*[layer] * times), torch.ones(2, 8))) for times in (1, 2))
    assert once.traffic.compulsory.read_bytes == twice.traffic.compulsory.read_bytes


def test_of_an_embedding_only_the_rows_picked_are_read() -> None:
    found = price(capture(nn.Embedding(1000, 8), torch.tensor([1, 2]))).traffic.compulsory
    assert found.read_bytes[Category.WEIGHTS] == 2 * 8 * 4


def test_a_decode_step_reads_the_cache_and_writes_one_token() -> None:
    found = price(tiny_llama(cached=5)).traffic.compulsory
    token = 2 * 2 * 2 * 4 * 4  # layers, keys and values, heads, width, bytes
    assert found.read_bytes[Category.KV_CACHE] == 5 * token
    assert found.written_bytes[Category.KV_CACHE] == token


def test_a_training_step_writes_its_gradients() -> None:
    found = price(capture(nn.Linear(8, 4), torch.ones(2, 8), backward=True)).traffic.compulsory
    assert found.written_bytes[Category.WEIGHTS] == (32 + 4) * 4

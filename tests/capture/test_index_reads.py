from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from torch import nn

from tests.capture.nets import CacheObject
from torchstone.capture.module_tree import IndexReads, layer_numbers


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer_idx = 2
        self.kinds = ["a", "b", "c"]

    def hands_over(self, past: CacheObject) -> None:
        past.entries.index(self.layer_idx)

    def looks_up_in_state(self, past: CacheObject) -> object:
        return past.entries[self.layer_idx]

    def compares(self, past: CacheObject) -> bool:
        return self.layer_idx > 0 and past is not None

    def looks_up_elsewhere(self, past: CacheObject) -> str:
        del past
        return self.kinds[self.layer_idx]

    def passes_itself(self, past: CacheObject) -> int:
        del past
        return number_of(self)


def number_of(layer: Layer) -> int:
    return layer.layer_idx


@contextmanager
def watched(layer: Layer, past: CacheObject) -> Iterator[IndexReads]:
    reads = IndexReads(lambda value: value is past)
    with reads.watching([layer]):
        yield reads


@pytest.mark.parametrize("harmless", [Layer.hands_over, Layer.looks_up_in_state])
def test_handing_the_number_to_a_state_is_harmless(harmless: object) -> None:
    layer, past = Layer(), CacheObject(entries=[1, 2, 3])

    with watched(layer, past) as reads:
        assert callable(harmless)
        harmless(layer, past)

    assert reads.count == 0


@pytest.mark.parametrize("harmful", [Layer.compares, Layer.looks_up_elsewhere, Layer.passes_itself])
def test_every_other_use_counts(harmful: object) -> None:
    layer, past = Layer(), CacheObject(entries=[1, 2, 3])

    with watched(layer, past) as reads:
        assert callable(harmful)
        harmful(layer, past)

    assert reads.count == 1


def test_the_class_is_left_as_it_was() -> None:
    layer, past = Layer(), CacheObject(entries=[])

    with watched(layer, past):
        layer.layer_idx = 5
        assert layer.layer_idx == 5
        del layer.layer_idx
        with pytest.raises(AttributeError):
            _ = layer.layer_idx

    assert "layer_idx" not in vars(Layer)


def test_only_whole_numbers_under_the_usual_names_number_a_layer() -> None:
    layer = Layer()
    layer.__dict__.update(layer_id="seven", block_idx=4, width=3)

    assert layer_numbers(layer) == {"layer_idx": 2, "block_idx": 4}
    assert layer_numbers(nn.Linear(1, 1)) == {}

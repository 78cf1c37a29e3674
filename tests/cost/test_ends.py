import torch

from tests.cost.calls import trace_of
from tests.cost.test_storages import tiny_llama
from torchstone.cost.storages import find_ends, fold_numbers
from torchstone.record.trace import Trace


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

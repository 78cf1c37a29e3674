import logging
import os
from pathlib import Path

import msgspec
import pytest
import torch
from huggingface_hub import constants

from torchstone.errors import ModelError, UnknownModelError, UnreadableFileError
from torchstone.models.inputs import InputOptions
from torchstone.models.pretrained import build, find_blueprint, quiet_and_offline
from torchstone.models.zoo.catalogue import find_entry

OPTIONS = InputOptions()


def test_the_network_is_shut_while_building_and_nothing_stays_behind() -> None:
    environment, level, offline = dict(os.environ), logging.getLogger("transformers").level, constants.HF_HUB_OFFLINE
    with quiet_and_offline():
        assert constants.HF_HUB_OFFLINE
    assert offline == constants.HF_HUB_OFFLINE
    assert logging.getLogger("transformers").level == level
    assert dict(os.environ) == environment


def test_building_leaves_the_random_state_as_it_was() -> None:
    before = torch.random.get_rng_state()
    build(find_blueprint("tiny:bert", OPTIONS), device="cpu", seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_layers_are_cut_and_noted() -> None:
    blueprint = find_blueprint("meta-llama/Llama-2-7b-hf", InputOptions(layers=2))
    assert blueprint.config.num_hidden_layers == 2
    assert blueprint.notes == ("layers: only the first 2 of each stack are built (num_hidden_layers 32 -> 2)",)


def test_a_configuration_that_cannot_be_built_says_why(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "bert", "hidden_size": 10, "num_attention_heads": 3}')
    with pytest.raises(
        ModelError, match=r"config\.json cannot be built as BertForMaskedLM: ValueError: The hidden size"
    ):
        build(find_blueprint(str(file), OPTIONS), device="meta", seed=0)


def test_a_folder_without_a_configuration_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match=r"has no config\.json"):
        find_blueprint(str(tmp_path), OPTIONS)


def test_a_name_that_is_nothing_is_refused() -> None:
    with pytest.raises(UnknownModelError, match="is not in the zoo"):
        find_blueprint("nobody/nothing", OPTIONS)


def test_zoo_entries_do_not_share_a_configuration_object() -> None:
    first, second = (find_blueprint("gpt2", OPTIONS).config for _ in range(2))
    first.n_layer = 1
    assert second.n_layer == 12


def test_a_model_that_is_larger_than_the_memory_is_refused_before_it_is_built() -> None:
    blueprint = find_blueprint("meta-llama/Llama-2-7b-hf", OPTIONS)
    blueprint.config.vocab_size = 1 << 36  # half a pebibyte

    with pytest.raises(ModelError, match=r"Llama-2-7b-hf cannot be built with values: .* do not fit .*--layers"):
        build(blueprint, device="cpu", seed=0)
    assert next(build(blueprint, device="meta", seed=0).parameters()).is_meta


def test_building_a_model_leaves_its_zoo_entry_as_it_was() -> None:
    entry = find_entry("meta-llama/Llama-4-Scout-17B-16E")
    assert entry is not None
    before = msgspec.json.encode(entry)

    find_blueprint(entry.id, InputOptions())

    assert msgspec.json.encode(entry) == before

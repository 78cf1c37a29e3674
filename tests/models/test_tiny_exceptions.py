from dataclasses import fields

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from torchstone.models.pretrained import build, default_blueprint
from torchstone.models.tiny import ADDED, OVERRIDES, PARTS


def known_names(model_type: str) -> set[str]:
    config = CONFIG_MAPPING[model_type]()
    return {field.name for field in fields(config)} | set(vars(config)) | set(config.attribute_map)


def test_exceptions_are_for_types_that_exist() -> None:
    assert [model_type for model_type in (*OVERRIDES, *PARTS, *ADDED) if model_type not in CONFIG_MAPPING] == []


@pytest.mark.parametrize("model_type", PARTS)
def test_the_parts_of_a_composite_type_build_its_configuration(model_type: str) -> None:
    parts = {name: CONFIG_MAPPING[part](**values) for name, (part, values) in PARTS[model_type].items()}
    config = CONFIG_MAPPING[model_type](**parts)
    assert all(getattr(config, name).model_type == part for name, (part, _) in PARTS[model_type].items())


def test_an_exception_names_fields_that_exist() -> None:
    unknown = {model_type: set(values) - known_names(model_type) for model_type, values in OVERRIDES.items()}

    assert {model_type: names for model_type, names in unknown.items() if names} == {}


def test_an_added_name_is_not_a_field_already() -> None:
    known = {model_type: set(added) & known_names(model_type) for model_type, added in ADDED.items()}

    assert {model_type: names for model_type, names in known.items() if names} == {}


@pytest.mark.parametrize(
    ("model_type", "field", "value"),
    [
        ("ministral", "head_dim", 128),
        ("nemotron", "num_key_value_heads", 48),
        ("lfm2_moe", "layer_types", ["conv", "full_attention"] * 16),
        (
            "cohere_compass_text",
            "rope_parameters",
            {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}},
        ),
    ],
)
def test_fields_without_a_default_are_completed_for_the_whole_size(model_type: str, field: str, value: object) -> None:
    blueprint = default_blueprint(model_type)
    assert getattr(blueprint.config, field) == value
    assert any(note.startswith(f"{field}: ") for note in blueprint.notes)
    assert sum(one.numel() for one in build(blueprint, device="meta", seed=0).parameters()) > 10**9

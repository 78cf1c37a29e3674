from dataclasses import fields

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

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

from pathlib import Path

import pytest

from torchstone.errors import ModelError
from torchstone.models.user_code import Target, UserCode, is_model_loader, make_loader

LOADER = """
from enum import StrEnum

class ModelVariant(StrEnum):
    BASE = "base_v1"
    LARGE = "large_v1"

class ModelLoader:
    _VARIANTS = {ModelVariant.BASE: 1, ModelVariant.LARGE: 2}

    def __init__(self, variant=None):
        self.variant = variant or ModelVariant.BASE

    @classmethod
    def query_available_variants(cls):
        return cls._VARIANTS

    def load_model(self): ...
    def load_inputs(self): ...

class Silent:
    def __init__(self, variant=None):
        self.variant = variant
    def load_model(self): ...
    def load_inputs(self): ...

class Half:
    def load_model(self): ...
"""


@pytest.fixture
def code(tmp_path: Path) -> UserCode:
    file = tmp_path / "ts_loader.py"
    file.write_text(LOADER)
    return UserCode.of(Target(text="", module=str(file), name="ModelLoader", is_file=True))


def test_a_class_with_both_methods_is_a_loader(code: UserCode) -> None:
    assert is_model_loader(code.attribute("ModelLoader"))
    assert not is_model_loader(code.attribute("Half"))


@pytest.mark.parametrize("variant", ["large_v1", "LARGE"])
def test_a_variant_is_found_by_name_or_value(code: UserCode, variant: str) -> None:
    assert make_loader(code, code.attribute("ModelLoader"), variant).variant == "large_v1"


def test_without_a_variant_the_loader_takes_its_default(code: UserCode) -> None:
    assert make_loader(code, code.attribute("ModelLoader"), None).variant == "base_v1"


def test_an_unknown_variant_lists_the_known_ones(code: UserCode) -> None:
    with pytest.raises(ModelError, match=r"has no variant 'huge'; its variants are base_v1, large_v1"):
        make_loader(code, code.attribute("ModelLoader"), "huge")


def test_a_loader_that_names_no_variants_decides_itself(code: UserCode) -> None:
    assert make_loader(code, code.attribute("Silent"), "any").variant == "any"

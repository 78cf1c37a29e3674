from pathlib import Path

import pytest

from tests.formula.derive.benches import llama_library
from torchstone.cli.formula_deriving import built_by_transformers, derive_recipe, model_type_in, with_callees
from torchstone.errors import InputError, ModelError
from torchstone.formula.names import short_name

RECIPE = """
import torch
from torch import nn

class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)

    def forward(self, x):
        a, b = self.up(x).chunk(2, dim=-1)
        return a * torch.sigmoid(b)

def make(B, S, width):
    with torch.device("meta"):
        return Gate(width), torch.zeros(B, S, width)

def broken(B):
    raise RuntimeError("no such size")
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "gate.py"
    path.write_text(RECIPE)
    return path


def test_a_class_of_the_users_own_is_derived_by_a_recipe(recipe: Path) -> None:
    library, _ = derive_recipe("Gate", f"{recipe}::make", ["B", "S", "width"])

    (gate,) = (entry for name, entry in library.entries.items() if short_name(name) == "Gate")
    assert gate.flop_analysis.formula_template.startswith(
        "{Linear}(batch_elements=${B} * ${S}, input_features=${width}, output_features=2 * ${width}, bias=1)"
    )


def test_a_recipe_that_raises_is_named_with_the_setting(recipe: Path) -> None:
    with pytest.raises(ModelError, match=r"stops at B=.* with RuntimeError: no such size"):
        derive_recipe("Gate", f"{recipe}::broken", ["B"])


def test_the_model_type_is_that_of_the_configuration() -> None:
    assert model_type_in("gpt2") == "gpt2"
    assert model_type_in("tiny:llama") == "llama"
    with pytest.raises(InputError, match="--recipe"):
        model_type_in("net.py::load_model")


def test_only_configurations_are_built_by_transformers() -> None:
    assert built_by_transformers("tiny:bert")
    assert not built_by_transformers("pkg.mod:fn")


def test_callees_that_ship_are_not_kept_again() -> None:
    library = llama_library()
    (layer,) = (entry for name, entry in library.entries.items() if short_name(name) == "LlamaDecoderLayer")

    assert [short_name(entry.module_path) for entry in with_callees([layer], library)] == ["LlamaDecoderLayer"]

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.formula.derive.benches import llama_library
from tests.workflows.formula_recipes import LINEAR, RECIPES
from torchstone.errors import InputError, MissingExtraError, ModelError
from torchstone.formula.database.files import load_file, own_entries, short_name
from torchstone.record.formula import MeasuredCost
from torchstone.workflows.formula_derive import (
    DeriveRequest,
    blueprint_of,
    built_by_transformers,
    derive_formulas,
    derive_recipe,
    load_recipe,
    make_bench,
    measure_recipe,
    save_derived,
    with_callees,
)

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
    library = derive_recipe(f"{recipe}::make", ["B", "S", "width"])

    (gate,) = (entry for name, entry in library.entries.items() if short_name(name) == "Gate")
    assert gate.flop_analysis.formula_template.startswith(
        "{Linear}(batch_elements=${B} * ${S}, input_features=${width}, output_features=2 * ${width}, bias=1)"
    )


def test_a_recipe_that_raises_is_named_with_the_setting(recipe: Path) -> None:
    with pytest.raises(ModelError, match=r"failed at B=.* with RuntimeError: no such size"):
        derive_recipe(f"{recipe}::broken", ["B"])


def test_the_model_type_is_that_of_the_configuration() -> None:
    assert blueprint_of("gpt2").config.model_type == "gpt2"
    assert blueprint_of("tiny:llama").config.model_type == "llama"
    with pytest.raises(InputError, match="--recipe"):
        blueprint_of("net.py::load_model")


def test_only_configurations_are_built_by_transformers() -> None:
    assert built_by_transformers("tiny:bert")
    assert not built_by_transformers("pkg.mod:fn")


def test_callees_that_ship_are_not_kept_again() -> None:
    library = llama_library()
    (layer,) = (entry for name, entry in library.entries.items() if short_name(name) == "LlamaDecoderLayer")

    assert [short_name(entry.module_path) for entry in with_callees([layer], library)] == ["LlamaDecoderLayer"]


def test_a_class_of_torch_is_derived_without_being_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path / "home"))

    result = derive_formulas(DeriveRequest(class_path="torch.nn.ReLU"))

    assert result.complete
    assert [entry.flop_analysis.formula_template for entry in result.entries] == ["${elements}"]
    assert not (tmp_path / "home").exists()

    assert save_derived(result, tmp_path / "mine.json").num_entries == 1
    assert save_derived(result).path == tmp_path / "home" / "module_db.json"
    assert load_file(tmp_path / "mine.json") == own_entries(tmp_path / "home")


def test_a_class_that_no_run_contains_is_refused_by_name(recipe: Path) -> None:
    result = derive_formulas(DeriveRequest(class_path="other.Net", recipe=f"{recipe}::make", sizes=("B", "S", "width")))

    assert not result.complete
    assert result.refused == {"other.Net": "other.Net was not seen in any run"}


def test_a_damaged_database_is_named_when_entries_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path))
    (tmp_path / "module_db.json").write_text("damaged")

    saved = save_derived(derive_formulas(DeriveRequest(class_path="torch.nn.ReLU")))

    assert [path.read_text() for path in saved.damaged] == ["damaged"]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (DeriveRequest(), "give one CLASS, or --all-in MODEL"),
        (DeriveRequest(class_path="a.B", model="gpt2"), "give one CLASS, or --all-in MODEL"),
        (DeriveRequest(class_path="a.B", decode=True, use_cache=False), "needs a cache; drop --no-cache"),
        (DeriveRequest(class_path="a.B", decode=True, recipe="x.py::f"), "needs a cache; drop --recipe"),
        (DeriveRequest(class_path="a.B", recipe="x.py::f"), "--recipe needs --sizes"),
    ],
)
def test_a_wrong_request_is_one_sentence(request_: DeriveRequest, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        derive_formulas(request_)


def test_what_is_measured_is_what_cost_counts() -> None:
    trace, table = make_bench("tests").measure(nn.Linear(8, 4, bias=False), (torch.zeros(3, 8),))

    assert table.totals.flops == 2 * 3 * 8 * 4
    assert make_bench("tests").price(trace.ops[1].signature)[0] == table.totals.flops


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchstone.workflows.formula_derive.find_spec", lambda _: None)

    with pytest.raises(MissingExtraError, match=r"torchstone\[torch\]"):
        make_bench("deriving a formula")
    with pytest.raises(MissingExtraError, match=r"torchstone\[torch\]"):
        measure_recipe(f"{RECIPES}::linear", LINEAR, [{"n": 1, "i": 1, "o": 1}])


def test_a_recipe_makes_the_module_of_a_setting() -> None:
    module, inputs = load_recipe(f"{RECIPES}::linear")({"n": 4, "i": 8, "o": 2})

    assert isinstance(module, nn.Linear)
    assert (module.in_features, module.out_features) == (8, 2)
    assert isinstance(inputs, tuple)
    assert [one.shape for one in inputs] == [(4, 8)]


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ("::no_pair", "returned int; return the module and its inputs"),
        ("::fails", "failed at n=3 with ValueError: 3"),
        ("::missing", "has no 'missing'"),
        ("", "does not name a function"),
    ],
)
def test_a_recipe_that_does_not_work_is_named(recipe: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        load_recipe(f"{RECIPES}{recipe}")({"n": 3})


def test_a_module_is_measured_at_each_setting() -> None:
    settings = [{"n": 4, "i": 8, "o": 2}, {"n": 1, "i": 3, "o": 5}]
    found, versions = measure_recipe(f"{RECIPES}::linear", LINEAR, settings)

    assert found == [
        MeasuredCost(
            parameters=settings[0],
            flops=2 * 4 * 8 * 2,
            reads_bytes=4 * (32 + 16),
            writes_bytes=4 * 8,
            live_bytes=4 * (32 + 8),
            weight_bytes=4 * 16,
        ),
        MeasuredCost(
            parameters=settings[1],
            flops=2 * 3 * 5,
            reads_bytes=4 * (3 + 15),
            writes_bytes=4 * 5,
            live_bytes=4 * (3 + 5),
            weight_bytes=4 * 15,
        ),
    ]
    assert "torch" in versions


def test_the_public_name_of_a_class_will_do() -> None:
    assert measure_recipe(f"{RECIPES}::linear", "torch.nn.Linear", [{"n": 1, "i": 1, "o": 1}])[0]


@pytest.mark.parametrize(
    ("recipe", "class_path", "reason"),
    [
        ("::fails", LINEAR, "failed at n=3 with ValueError: 3"),
        ("::fails_in_forward", LINEAR, "the module of .* failed"),
    ],
)
def test_a_recipe_that_cannot_be_measured_is_named(recipe: str, class_path: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        measure_recipe(f"{RECIPES}{recipe}", class_path, [{"n": 3}])


def test_a_recipe_for_another_class_is_refused() -> None:
    with pytest.raises(ModelError, match=r"builds torch\.nn\.modules\.linear\.Linear, not pkg\.Net"):
        measure_recipe(f"{RECIPES}::linear", "pkg.Net", [{"n": 1, "i": 1, "o": 1}])

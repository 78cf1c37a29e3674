from pathlib import Path

import pytest

from torchstone.cli.formula_measuring import measure_all
from torchstone.cli.options import Session
from torchstone.errors import ModelError
from torchstone.record.formula import MeasuredCost

RECIPES = Path(__file__).parent / "formula_recipes.py"
LINEAR = "torch.nn.modules.linear.Linear"


def test_a_module_is_measured_at_each_setting() -> None:
    settings = [{"n": 4, "i": 8, "o": 2}, {"n": 1, "i": 3, "o": 5}]
    found, versions = measure_all(f"{RECIPES}::linear", LINEAR, settings, Session())

    assert found == [
        MeasuredCost(parameters=settings[0], flops=2 * 4 * 8 * 2, reads_bytes=4 * (32 + 16), writes_bytes=4 * 8),
        MeasuredCost(parameters=settings[1], flops=2 * 3 * 5, reads_bytes=4 * (3 + 15), writes_bytes=4 * 5),
    ]
    assert "torch" in versions


def test_the_public_name_of_a_class_will_do() -> None:
    assert measure_all(f"{RECIPES}::linear", "torch.nn.Linear", [{"n": 1, "i": 1, "o": 1}], Session())[0]


@pytest.mark.parametrize(
    ("recipe", "class_path", "reason"),
    [
        ("::fails", LINEAR, "stops at n=3 with ValueError: 3"),
        ("::fails_in_forward", LINEAR, "the module of .* failed"),
    ],
)
def test_a_recipe_that_does_not_work_is_named(recipe: str, class_path: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        measure_all(f"{RECIPES}{recipe}", class_path, [{"n": 3}], Session())


def test_a_recipe_for_another_class_is_refused() -> None:
    with pytest.raises(ModelError, match=r"builds torch\.nn\.modules\.linear\.Linear, not pkg\.Net"):
        measure_all(f"{RECIPES}::linear", "pkg.Net", [{"n": 1, "i": 1, "o": 1}], Session())

import pytest
import torch

from tests.formula.derive.benches import seeded
from torchstone.formula.derive.samples import RECIPES


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds_a_module_that_takes_its_inputs(name: str) -> None:
    recipe = RECIPES[name]

    for choice in recipe.choices():
        module, inputs = recipe.make(recipe.points()[0].values, choice, "float32")

        assert type(module).__name__ == name
        with torch.no_grad():
            assert module(*inputs) is not None


def test_some_points_are_held_out_and_all_differ() -> None:
    points = RECIPES["Linear"].points()

    assert {point.held_out for point in points} == {True, False}
    assert len({tuple(point.values.values()) for point in points}) == len(points)


def test_random_points_stay_within_what_the_class_takes() -> None:
    for point in RECIPES["Conv2d"].random_points(seeded(3), 5):
        RECIPES["Conv2d"].make(point.values, {"bias": True}, "float32")

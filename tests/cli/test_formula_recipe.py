import pytest

from tests.cli.test_formula_measuring import RECIPES
from torchstone.cli.formula_recipe import load_recipe
from torchstone.errors import ModelError


def test_a_recipe_makes_the_module_of_a_setting() -> None:
    module, (given,) = load_recipe(f"{RECIPES}::linear")({"n": 4, "i": 8, "o": 2})

    assert (module.in_features, module.out_features) == (8, 2)
    assert given.shape == (4, 8)


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ("::no_pair", "gave int; return the module and its inputs"),
        ("::fails", "stops at n=3 with ValueError: 3"),
        ("::missing", "has no 'missing'"),
        ("", "names no function"),
    ],
)
def test_a_recipe_that_does_not_work_is_named(recipe: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        load_recipe(f"{RECIPES}{recipe}")({"n": 3})

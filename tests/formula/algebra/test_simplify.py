import pytest

from torchstone.formula.algebra.polynomial import simplified
from torchstone.formula.algebra.simplify import within_domain
from torchstone.formula.language.parse import parse


@pytest.mark.parametrize("condition", ["h % n == 0", "n > 0 and h % n == 0"])
def test_what_divides_without_rest_needs_no_rounding(condition: str) -> None:
    assert simplified(within_domain(parse("h // n * n + 1"), [parse(condition)])) == parse("h + 1")


@pytest.mark.parametrize("condition", ["n % h == 0", "h % n == 1", "h % n < 1", "h % n == 0 or n > 3"])
def test_other_conditions_change_nothing(condition: str) -> None:
    tree = parse("h // n * n")

    assert within_domain(tree, [parse(condition)]) == tree

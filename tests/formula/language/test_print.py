import pytest
from hypothesis import given, settings

from tests.formula.expressions import expressions
from torchstone.formula.language.expression import Expression, Negate, Number, Product, Sum
from torchstone.formula.language.parse import parse
from torchstone.formula.language.print import show


@settings(max_examples=250)
@given(expressions)
def test_what_is_printed_is_read_as_the_same_tree(tree: Expression) -> None:
    assert parse(show(tree)) == tree


@settings(max_examples=60)
@given(expressions)
def test_printing_is_a_fixed_point(tree: Expression) -> None:
    assert show(parse(show(tree))) == show(tree)


@pytest.mark.parametrize(
    "text",
    [
        "2 * ${B} * ${S}",
        "${a} - 3",
        "${a} - ${b} * ${c}",
        "(${a} + ${b}) * ${c}",
        "9/2 * ${a}",
        "${a} * (9/2)",
        "(-3)**2",
        "2**-1",
        "${a} // ${b} % ${c}",
        "{Linear}(${B} * ${S}, out=${H})",
        "max(${a}, 0) if ${a} > 0 and not ${b} else 1",
    ],
)
def test_a_tidy_template_stays_as_it_is(text: str) -> None:
    assert show(parse(text)) == text


def test_brackets_appear_only_where_they_are_needed() -> None:
    assert show(parse("((a * b)) + (c)")) == "${a} * ${b} + ${c}"


def test_a_negated_number_is_not_a_negative_number() -> None:
    assert show(Negate(Number(3))) == "-(3)"
    assert show(Sum((Number(1), Negate(Number(3))))) == "1 - (3)"
    assert show(Product((Number(2), Negate(Number(3))))) == "2 * -(3)"


def test_plain_text_is_for_people() -> None:
    assert show(parse("2 * ${B} + {torch.nn.Linear}(${S})"), plain=True) == "2 * B + torch.nn.Linear(S)"
    assert show(parse("{Net}(B=${B}, S=${B}, n=2 * ${n})"), plain=True) == "Net(B, S=B, n=2 * n)"

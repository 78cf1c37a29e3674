from fractions import Fraction

from hypothesis import given

from tests.formula.expressions import expressions
from torchstone.formula.language.expression import (
    Call,
    Expression,
    Number,
    Parameter,
    Product,
    Sum,
    called_modules,
    children,
    depth_of,
    free_parameters,
    rewrite,
    substitute,
    walk,
    with_children,
)
from torchstone.formula.language.parse import parse


def test_a_whole_number_is_an_int_however_it_was_made() -> None:
    assert Number(Fraction(6, 3)) == Number(2)
    assert isinstance(Number(Fraction(6, 3)).value, int)


def test_the_place_in_the_template_does_not_make_a_parameter_another() -> None:
    assert Parameter("B", position=3) == Parameter("B")


def test_parameters_are_listed_once_in_the_order_of_reading() -> None:
    assert free_parameters(parse("${S} * {Net}(${B}, x=${S}) + ${H}")) == ("S", "B", "H")


def test_called_modules_are_listed_once() -> None:
    assert called_modules(parse("{A}({B}(1)) + {A}(2)")) == ("A", "B")


def test_some_parameters_are_replaced_and_the_others_stay() -> None:
    tree = substitute(parse("${B} * ${S} + {Net}(${B}, n=${S})"), {"B": 2, "S": parse("${T} + 1")})

    assert tree == parse("2 * (${T} + 1) + {Net}(2, n=${T} + 1)")


def test_all_parameters_are_replaced_at_once() -> None:
    assert substitute(parse("${a} - ${b}"), {"a": Parameter("b"), "b": Parameter("a")}) == parse("${b} - ${a}")


def test_the_depth_is_that_of_the_longest_way_down() -> None:
    assert depth_of(parse("1 + 2 * (3 - 4)")) == 4


@given(expressions)
def test_every_node_can_be_rebuilt_from_its_operands(tree: Expression) -> None:
    assert all(with_children(node, children(node)) == node for node in walk(tree))
    assert rewrite(tree, lambda node: node) is tree


def test_a_call_keeps_the_names_of_its_arguments() -> None:
    call = Call("Net", (Number(1),), (("n", Number(2)),))

    assert with_children(call, (Number(3), Number(4))) == Call("Net", (Number(3),), (("n", Number(4)),))


def test_rewriting_goes_from_the_operands_up() -> None:
    def to_sum(node: Expression) -> Expression:
        return Sum(node.factors) if isinstance(node, Product) else node

    assert rewrite(parse("2 * (3 * 4)"), to_sum) == Sum((Number(2), Sum((Number(3), Number(4)))))

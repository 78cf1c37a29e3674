import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formula.expressions import PARAMETERS, call_free, values
from tests.formula.python_judge import python_value
from torchstone.errors import FormulaError
from torchstone.formula.language.evaluate import MAX_NESTING, Budget, evaluate
from torchstone.formula.language.expression import Call, Expression, Negate, Number, Value
from torchstone.formula.language.parse import parse

points = st.fixed_dictionaries(dict.fromkeys(PARAMETERS, values))


@settings(max_examples=250)
@given(call_free, points)
def test_a_random_formula_has_the_value_that_python_gives(tree: Expression, point: dict[str, Value]) -> None:
    try:
        value = evaluate(tree, point)
    except FormulaError:
        return  # a zero divisor, a broken exponent or a limit: nothing to compare

    assert value == python_value(tree, point)


@pytest.mark.parametrize("text", ["1 / (B - B)", "B ** (1/2)", "B // 0", "B % 0", "0 ** -B"])
def test_what_has_no_exact_value_is_an_error(text: str) -> None:
    with pytest.raises(FormulaError):
        evaluate(parse(text), {"B": 3})


def test_whole_numbers_stay_ints_and_broken_ones_stay_exact() -> None:
    assert evaluate(parse("2 * B * 4.5"), {"B": 3}) == 27
    assert isinstance(evaluate(parse("2 * B * 4.5"), {"B": 3}), int)
    assert evaluate(parse("B / 7"), {"B": 3}) == Fraction(3, 7)


def test_only_the_chosen_branch_is_computed() -> None:
    assert evaluate(parse("1 if B > 0 else 1 / (B - B)"), {"B": 3}) == 1
    assert evaluate(parse("B > 0 or 1 / (B - B)"), {"B": 3}) == 1
    assert evaluate(parse("B < 0 and 1 / (B - B)"), {"B": 3}) == 0


def test_a_parameter_without_a_value_is_named() -> None:
    with pytest.raises(FormulaError, match="the parameter S has no value"):
        evaluate(parse("B * S"), {"B": 1})


def test_a_call_is_computed_by_whoever_asks() -> None:
    def twice(node: Call, arguments: tuple[Value, ...], named: dict[str, Value]) -> Value:
        assert node.module == "Net"
        return 2 * arguments[0] + named["n"]

    assert evaluate(parse("1 + {Net}(B * 10, n=B)"), {"B": 3}, call=twice) == 64


def test_a_call_is_an_error_without_a_function_that_computes_it() -> None:
    with pytest.raises(FormulaError, match="Net is called"):
        evaluate(parse("{Net}(1)"), {})


@pytest.mark.parametrize(
    "text",
    ["9**9**9**9", "B**B**B", "(" * 30 + "B" + "*B)**20" * 30, "*".join(["B**300"] * 900), "2**4000 * 2**4000"],
    ids=["tower", "tower of parameters", "squares of squares", "long product", "large factors"],
)
def test_a_hostile_formula_ends_fast(text: str) -> None:
    start = time.process_time()
    with pytest.raises(FormulaError, match="bits"):
        evaluate(parse(text), {"B": 10**6})

    assert time.process_time() - start < 20  # as written, it would take years; a busy machine takes a second


def test_the_budget_of_steps_is_kept() -> None:
    with pytest.raises(FormulaError, match="takes more than"):
        evaluate(parse("B + B + B"), {"B": 1}, budget=Budget(steps=3))


def test_a_tree_that_was_built_too_deep_is_refused() -> None:
    tree: Expression = Number(1)
    for _ in range(MAX_NESTING):
        tree = Negate(tree)

    with pytest.raises(FormulaError, match="nested more than"):
        evaluate(tree, {})

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formula.expressions import PARAMETERS, call_free
from torchstone.errors import FormulaError
from torchstone.formula.evaluating import evaluate
from torchstone.formula.expression import Expression, Value
from torchstone.formula.parsing import parse
from torchstone.formula.polynomial import expand, same_value, simplified
from torchstone.formula.printing import show

points = st.fixed_dictionaries(dict.fromkeys(PARAMETERS, st.integers(1, 30)))


@settings(max_examples=200)
@given(call_free, points)
def test_multiplying_out_keeps_the_value(tree: Expression, point: dict[str, Value]) -> None:
    try:
        value, simple = evaluate(tree, point), simplified(tree)
        found = evaluate(simple, point)
    except FormulaError:
        return  # no value here, or too large to be multiplied out

    assert found == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(a + b) * (a - b)", "a**2 - b**2"),
        ("(a + b)**3", "a**3 + 3 * a**2 * b + 3 * a * b**2 + b**3"),
        ("a / b * b", "a"),
        ("a - a", "0"),
        ("2 * (a // b) + a // b", "3 * (a // b)"),
        ("1 / (a + b) + c / (b + a)", "c / (a + b) + 1 / (a + b)"),
        ("min(2, 3) + max(a, 1 + 1)", "max(a, 2) + 2"),
        ("a if 2 > 1 else a / (b - b)", "a"),
        ("a if b > 2 - 1 else c", "a if b > 1 else c"),
        ("{Net}(a + a) + {Net}(2 * a)", "2 * Net(2 * a)"),
        ("a**b * a**b", "(a**b)**2"),
        ("-a * b - 3", "-a * b - 3"),
        ("c - 2 * a * b / 3", "-2/3 * a * b + c"),
    ],
)
def test_a_formula_is_written_in_one_way(text: str, expected: str) -> None:
    assert show(simplified(parse(text)), plain=True) == expected


def test_equal_formulas_are_known_to_be_equal() -> None:
    assert same_value(parse("2 * (a + b)"), parse("b * 2 + a + a"))
    assert not same_value(parse("a * b"), parse("a + b"))


def test_powers_of_one_parameter_are_gathered() -> None:
    powers = expand(parse("a * S**2 + b * S**2 + c * S + 7")).by_power_of("S")

    assert {power: show(part.tree, plain=True) for power, part in powers.items()} == {2: "a + b", 1: "c", 0: "7"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4 * B * S * H + 6 * B * S", "2 * B * S * (2 * H + 3)"),
        ("a * b**2 + a * b**3", "a * b**2 * (b + 1)"),
        ("a + b", "a + b"),
        ("2 * a + 2 * b", "2 * (a + b)"),
        ("a / 2 + 3 * a", "7/2 * a"),
        ("a / 2 + 3 * a * b", "a * (3 * b + 1/2)"),
        ("-2 * a - 4 * b", "2 * (-a - 2 * b)"),
        ("7", "7"),
    ],
)
def test_what_all_terms_share_stands_in_front(text: str, expected: str) -> None:
    tree = expand(parse(text)).with_common_factor

    assert show(tree, plain=True) == expected
    assert same_value(tree, parse(text))


def test_a_number_is_known_as_one() -> None:
    assert expand(parse("2 * 3 + 1")).constant == 7
    assert expand(parse("a - a")).constant == 0
    assert expand(parse("a")).constant is None


def test_division_by_a_formula_that_is_zero_is_refused() -> None:
    with pytest.raises(FormulaError, match="division by zero"):
        expand(parse("1 / (a - a)"))


@pytest.mark.parametrize(
    "text",
    ["(a + b + c + d + e)**60", "*".join(f"(a{n} + b{n})" for n in range(30)), "(2**60 * a)**64 * (2**60 * b)**64"],
)
def test_what_would_grow_beyond_reason_is_refused_fast(text: str) -> None:
    start = time.process_time()
    with pytest.raises(FormulaError, match="more than"):
        expand(parse(text))

    assert time.process_time() - start < 5

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formula.expressions import PARAMETERS, call_free
from torchstone.errors import FormulaError
from torchstone.formula.codegen.generated import exact
from torchstone.formula.codegen.python_text import PythonPrinter, literal
from torchstone.formula.language.evaluate import evaluate
from torchstone.formula.language.expression import Call, Expression, Value
from torchstone.formula.language.parse import CHOOSE, parse

points = st.fixed_dictionaries(dict.fromkeys(PARAMETERS, st.integers(-9, 30)))


def call_text(node: Call) -> tuple[str, list[tuple[str, Expression]]]:
    return f"_{node.module}.flops", list(node.named)


def python_of(text: str) -> str:
    return PythonPrinter(call_text).text(parse(text), CHOOSE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 * a + b // 3", "2 * a + b // 3"),
        ("a / b * c", "_exact.divide(a, b) * c"),
        ("a**2 + a**-1", "a**2 + _exact.power(a, -1)"),
        ("4.5 * a", "_exact.fraction(9, 2) * a"),
        ("max(a, b) - min(a, 1)", "_exact.largest(a, b) - _exact.smallest(a, 1)"),
        ("ceil(a) + floor(b)", "_exact.rounded_up(a) + _exact.rounded_down(b)"),
        ("a > 0", "_exact.truth(a > 0)"),
        ("not a and b < 2", "_exact.truth(not a != 0 and b < 2)"),
        ("1 if a else 2", "1 if a != 0 else 2"),
        ("1 if a > 2 or b else 2", "1 if a > 2 or b != 0 else 2"),
        ("{Net}(x=a * b)", "_Net.flops(x=a * b)"),
        ("-(a + b) * c", "-(a + b) * c"),
    ],
)
def test_a_formula_is_written_in_python(text: str, expected: str) -> None:
    assert python_of(text) == expected


@given(call_free, points)
def test_python_computes_what_the_evaluator_computes(tree: Expression, point: dict[str, Value]) -> None:
    try:
        value = evaluate(tree, point)
    except FormulaError:
        return  # no value here
    text = PythonPrinter(call_text).text(tree, CHOOSE)

    assert eval(text, {"__builtins__": {}, "_exact": exact}, dict(point)) == value  # noqa: S307 - what we generate


@given(st.text())
def test_any_text_is_a_literal_and_nothing_more(text: str) -> None:
    written = literal(text)

    assert ast.literal_eval(written) == text
    assert "\n" not in written
    assert isinstance(ast.parse(written, mode="eval").body, ast.Constant)

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formula.expressions import PARAMETERS, call_free
from torchstone.errors import FormulaError, MissingExtraError
from torchstone.formula.algebra.simplify import factored
from torchstone.formula.language.evaluate import evaluate
from torchstone.formula.language.expression import Expression, Value
from torchstone.formula.language.parse import parse
from torchstone.formula.language.print import show

pytest.importorskip("sympy", reason="writing formulas as products needs sympy")
points = st.fixed_dictionaries(dict.fromkeys(PARAMETERS, st.integers(2, 30)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 * B * S * H + 4 * B * S", "2 * B * S * (H + 2)"),
        ("a**2 - b**2", "(a + b) * (a - b)"),
        ("a**2 + 2 * a * b + b**2", "(a + b)**2"),
        ("(h // n) * S + (h // n) * B", "(h // n) * (B + S)"),
        ("a / b + c / b", "(a + c) / b"),
        ("7", "7"),
        ("-a", "-a"),
        ("-a * b - a * c", "-a * (b + c)"),
        ("max(a, b) * c + c", "c * (max(a, b) + 1)"),
    ],
)
def test_what_is_common_stands_in_front(text: str, expected: str) -> None:
    assert show(factored(parse(text)), plain=True) == expected


@settings(max_examples=30)
@given(call_free, points)
def test_a_product_has_the_value_of_the_sum(tree: Expression, point: dict[str, Value]) -> None:
    try:
        value, product = evaluate(tree, point), factored(tree)
        found = evaluate(product, point)
    except FormulaError:
        return  # no value here, or too large

    assert found == value


def test_without_sympy_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sympy", None)

    with pytest.raises(MissingExtraError, match=r"torchstone\[formula\]"):
        factored(parse("a"))

from hypothesis import given
from hypothesis import strategies as st

from tests.formula.algebra.test_polynomial import POINTS, polynomials
from torchstone.formula.algebra.polynomial import BIT_LENGTH, CHOOSE, FLOOR_DIVIDE, MIN, Applied, Polynomial
from torchstone.formula.derive.database_entries import factor_text, text_of
from torchstone.formula.language.evaluate import evaluate
from torchstone.formula.language.parse import parse

X, Y = Polynomial.unknown("x"), Polynomial.unknown("y")


@given(polynomials(), POINTS)
def test_the_text_computes_what_the_polynomial_does(form: Polynomial, point: dict[str, int]) -> None:
    assert evaluate(parse(text_of(form)), point) == form.value(point)


@given(st.sampled_from([BIT_LENGTH, FLOOR_DIVIDE, MIN, CHOOSE]), POINTS)
def test_so_do_functions_and_divisions(name: str, point: dict[str, int]) -> None:
    arguments = {BIT_LENGTH: (X,), FLOOR_DIVIDE: (X + Y, Y), MIN: (X, Y), CHOOSE: (X, Y, X * X, Y - X)}[name]
    form = Polynomial.unknown(Applied(name, arguments)) * X + X * Y**-1 + Y**-2

    assert evaluate(parse(text_of(form)), point) == form.value(point)


def test_batch_and_length_stand_first_and_what_is_subtracted_last() -> None:
    form = Polynomial.product(4, {"hidden_size": 1, "S": 2, "B": 1}) - Polynomial.product(1, {"a": 3})

    assert text_of(form) == "4 * ${B} * ${S}**2 * ${hidden_size} - ${a}**3"


def test_a_factor_has_brackets_where_it_needs_them() -> None:
    assert factor_text(X + Y) == "(${x} + ${y})"
    assert factor_text(X * Y) == "${x} * ${y}"
    assert text_of(Polynomial()) == "0"

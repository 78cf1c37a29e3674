from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.formula.derive.polynomial import CHOOSE, ONE, ZERO, Function, Polynomial

NAMES = ("x", "y", "z")


def polynomials() -> st.SearchStrategy[Polynomial]:
    powers = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), max_size=3)
    terms = st.builds(Polynomial.product, st.integers(-9, 9), powers)
    return st.lists(terms, max_size=4).map(lambda parts: sum(parts, start=ZERO))


POINTS = st.fixed_dictionaries({name: st.integers(1, 50) for name in NAMES})
X, Y = Polynomial.unknown("x"), Polynomial.unknown("y")


@given(polynomials(), polynomials(), POINTS)
def test_arithmetic_is_that_of_the_values(left: Polynomial, right: Polynomial, point: dict[str, int]) -> None:
    a, b = left.value(point), right.value(point)

    assert (left + right).value(point) == a + b
    assert (left - right).value(point) == a - b
    assert (left * right).value(point) == a * b


@given(polynomials(), st.integers(1, 12), POINTS)
def test_floor_division_is_that_of_the_values(form: Polynomial, divisor: int, point: dict[str, int]) -> None:
    divided = form.divided(Polynomial.constant(divisor))

    assert divided.value(point) == form.value(point) // divisor


def test_equal_sums_are_equal_objects() -> None:
    assert (X + Y) * (X - Y) == X * X - Y * Y
    assert X - X == ZERO


def test_a_division_without_rest_leaves_no_floor() -> None:
    assert (Polynomial.constant(32) * X + Polynomial.constant(7)).divided(
        Polynomial.constant(8)
    ) == Polynomial.constant(4) * X
    assert (X * Y).divided(X) == Y


def test_unknowns_are_replaced_also_below_a_power_and_inside_functions() -> None:
    choice = Polynomial.unknown(Function(CHOOSE, (X, Y, X, ONE)))

    assert (X**-1).replaced({"x": Y * Y}) == Y**-2
    assert choice.replaced({"x": Polynomial.constant(2), "y": Polynomial.constant(3)}) == Polynomial.constant(2)


def test_only_a_number_has_a_number() -> None:
    assert Polynomial.constant(Fraction(1, 2)).number == Fraction(1, 2)
    assert ZERO.number == 0
    assert X.number is None


def test_a_sum_cannot_be_turned_over() -> None:
    with pytest.raises(ValueError, match="unpack"):
        (X + Y) ** -1

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.errors import FormulaError
from torchstone.formula.language.evaluate import (
    MAX_BITS,
    bounded,
    ceil_log2,
    divide,
    evaluate,
    floor_divide,
    log2,
    modulo,
    power,
)
from torchstone.formula.language.expression import Value
from torchstone.formula.language.parse import parse

small = st.one_of(st.integers(-50, 50), st.fractions(min_value=-9, max_value=9, max_denominator=9))


@given(small, small.filter(bool))
def test_division_is_exact(left: Value, right: Value) -> None:
    assert divide(left, right) * right == left
    assert floor_divide(left, right) * right + modulo(left, right) == left


@given(small.filter(bool), st.integers(-12, 12))
def test_powers_are_those_of_fractions(base: Value, exponent: int) -> None:
    assert power(base, exponent) == Fraction(base) ** exponent


def test_a_whole_result_is_an_int() -> None:
    assert isinstance(divide(6, 3), int)
    assert isinstance(power(2, 10), int)


@pytest.mark.parametrize(
    ("base", "exponent", "expected"),
    [(1, 10**400, 1), (-1, 10**400, 1), (-1, 10**400 + 1, -1), (0, 10**400, 0), (0, 0, 1)],
)
def test_a_huge_exponent_of_one_or_zero_is_no_work(base: int, exponent: int, expected: int) -> None:
    assert power(base, exponent) == expected


@pytest.mark.parametrize(("base", "exponent"), [(2, 10**30), (10, 10**9), (Fraction(1, 2), 10**9), (2, -(10**9))])
def test_a_huge_power_is_refused_before_it_is_computed(base: Value, exponent: int) -> None:
    with pytest.raises(FormulaError, match="more than 4096 bits"):
        power(base, exponent)


def test_a_broken_exponent_is_refused() -> None:
    with pytest.raises(FormulaError, match="1/2 of \\*\\* is not a whole number"):
        power(4, Fraction(1, 2))


@pytest.mark.parametrize("operation", [divide, floor_divide, modulo])
def test_division_by_zero_is_an_error_of_ours(operation: object) -> None:
    assert callable(operation)
    with pytest.raises(FormulaError, match="division by zero"):
        operation(1, 0)
    with pytest.raises(FormulaError, match="division by zero"):
        power(0, -1)


def test_numbers_may_grow_to_the_limit_and_not_beyond() -> None:
    assert bounded(2**MAX_BITS - 1) == 2**MAX_BITS - 1
    for value in (2**MAX_BITS, Fraction(1, 2**MAX_BITS)):
        with pytest.raises(FormulaError, match="4097 bits"):
            bounded(value)


@pytest.mark.parametrize(
    ("number", "steps"), [(-3, 0), (1, 0), (2, 1), (3, 2), (1024, 10), (1025, 11), (Fraction(9, 2), 3)]
)
def test_the_logarithm_is_rounded_up(number: Value, steps: int) -> None:
    assert ceil_log2(number) == steps


def test_a_logarithm_is_exact_at_powers_of_two_and_the_nearest_double_elsewhere() -> None:
    assert [log2(number) for number in (0, Fraction(1, 2), 1, 2, 1024, 2**70)] == [0, 0, 0, 1, 10, 70]
    assert log2(3) == Fraction(math.log2(3))
    assert evaluate(parse("(10 * n * log2(n) + 1) // 2"), {"n": 12}) == round(5 * 12 * math.log2(12))

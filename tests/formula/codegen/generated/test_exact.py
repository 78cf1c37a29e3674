from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.formula.codegen.generated import exact
from torchstone.formula.language import evaluate

values = st.one_of(st.integers(-50, 50), st.fractions(min_value=-9, max_value=9, max_denominator=9))


@given(values, values.filter(bool), st.integers(-9, 9))
def test_generated_code_computes_as_the_evaluator_does(left: exact.Value, right: exact.Value, exponent: int) -> None:
    assert exact.divide(left, right) == evaluate.divide(left, right)
    assert exact.power(right, exponent) == evaluate.power(right, exponent)
    assert exact.ceil_log2(left) == evaluate.ceil_log2(left)
    assert exact.log2(left) == evaluate.log2(left)
    assert exact.rounded_up(left) - 1 < left <= exact.rounded_up(left)
    assert exact.rounded_down(left) <= left < exact.rounded_down(left) + 1


def test_whole_numbers_are_ints() -> None:
    assert isinstance(exact.whole(Fraction(4, 2)), int)
    assert isinstance(exact.divide(6, 3), int)
    assert exact.fraction(9, 2) == Fraction(9, 2)


def test_the_smallest_and_the_largest_are_found() -> None:
    assert (exact.smallest(3, 1, 2), exact.largest(3, 1, 2)) == (1, 3)
    assert exact.smallest(5) == exact.largest(5) == 5


def test_truth_is_one_or_zero() -> None:
    assert (exact.truth(condition=True), exact.truth(condition=False)) == (1, 0)


def test_a_broken_exponent_is_refused() -> None:
    with pytest.raises(ValueError, match="1/2 is not a whole number"):
        exact.power(4, Fraction(1, 2))


def test_what_is_outside_the_domain_is_refused_with_the_reason() -> None:
    exact.require(condition=True, explanation="fine")
    with pytest.raises(exact.OutsideDomainError, match="holds only where"):
        exact.require(condition=False, explanation="Net holds only where n > 0")

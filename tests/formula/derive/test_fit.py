from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from torchstone.formula.algebra.polynomial import Polynomial
from torchstone.formula.derive.fit import fit, solve

POINTS = [
    {"a": 2, "b": 7, "c": 11}, {"a": 3, "b": 13, "c": 17}, {"a": 5, "b": 19, "c": 23}, {"a": 2, "b": 29, "c": 31},
    {"a": 3, "b": 37, "c": 41}, {"a": 5, "b": 43, "c": 47},
]  # fmt: skip


@given(st.integers(1, 1000), st.dictionaries(st.sampled_from("abc"), st.integers(1, 3), max_size=3))
def test_every_product_is_found_again(coefficient: int, powers: dict[str, int]) -> None:
    wanted = Polynomial.product(coefficient, powers)

    assert fit([int(wanted.value(point)) for point in POINTS], POINTS) == wanted


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 50))
def test_a_product_with_a_sum_is_found_again(x: int, y: int, z: int) -> None:
    wanted = Polynomial.unknown("a") * (
        Polynomial.product(x, {"b": 1}) + Polynomial.product(y, {"c": 1}) + Polynomial.constant(z)
    )
    found = fit([int(wanted.value(point)) for point in POINTS], POINTS)

    assert found is not None
    assert all(found.value(point) == wanted.value(point) for point in POINTS)


def test_numbers_of_no_polynomial_are_refused() -> None:
    assert fit([point["a"] % 2 + point["b"] % 3 + point["c"] % 5 for point in POINTS], POINTS) is None


def test_one_value_that_is_merely_close_is_refused() -> None:
    values = [point["a"] * point["b"] * point["c"] for point in POINTS]
    values[-1] += 1

    assert fit(values, POINTS) is None


def test_a_system_without_a_single_solution_has_none() -> None:
    one, two = Fraction(1), Fraction(2)

    assert solve([[one, one], [one, one]], [one, two]) is None
    assert solve([[one, one], [two, two]], [one, two]) is None
    assert solve([[one, one], [one, -one]], [two, Fraction(0)]) == [one, one]

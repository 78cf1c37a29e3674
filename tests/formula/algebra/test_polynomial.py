import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formula.expressions import PARAMETERS, call_free
from torchstone.errors import FormulaError
from torchstone.formula.algebra.polynomial import (
    BIT_LENGTH,
    CHOOSE,
    FLOOR_DIVIDE,
    MIN,
    MODULO,
    ONE,
    ZERO,
    Applied,
    Polynomial,
    expand,
    same_value,
    simplified,
)
from torchstone.formula.language.evaluate import evaluate
from torchstone.formula.language.expression import Expression, Value
from torchstone.formula.language.parse import parse
from torchstone.formula.language.print import show

NAMES = ("x", "y", "z")


def polynomials() -> st.SearchStrategy[Polynomial]:
    powers = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), max_size=3)
    terms = st.builds(Polynomial.product, st.integers(-9, 9), powers)
    return st.lists(terms, max_size=4).map(lambda parts: sum(parts, start=ZERO))


POINTS = st.fixed_dictionaries({name: st.integers(1, 50) for name in NAMES})
X, Y = Polynomial.unknown("x"), Polynomial.unknown("y")

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
    tree = expand(parse(text)).with_shared_factor

    assert show(tree, plain=True) == expected
    assert same_value(tree, parse(text))


def test_a_number_is_known_as_one() -> None:
    assert expand(parse("2 * 3 + 1")).number == 7
    assert expand(parse("a - a")).number == 0
    assert expand(parse("a")).number is None


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
    choice = Polynomial.unknown(Applied(CHOOSE, (X, Y, X, ONE)))

    assert (X**-1).replaced({"x": Y * Y}) == Y**-2
    assert choice.replaced({"x": Polynomial.constant(2), "y": Polynomial.constant(3)}) == Polynomial.constant(2)


def test_only_a_number_has_a_number() -> None:
    assert Polynomial.constant(Fraction(1, 2)).number == Fraction(1, 2)
    assert ZERO.number == 0
    assert X.number is None


def test_a_sum_cannot_be_turned_over() -> None:
    with pytest.raises(ValueError, match="unpack"):
        (X + Y) ** -1


def applied() -> st.SearchStrategy[Polynomial]:
    """Atoms that are not polynomials, over polynomials; their divisors are positive numbers."""
    numbers = st.integers(1, 9).map(Polynomial.constant)
    parts = polynomials()
    return st.one_of(
        st.tuples(parts, numbers).map(lambda two: Polynomial.unknown(Applied(FLOOR_DIVIDE, two))),
        st.tuples(parts, numbers).map(lambda two: Polynomial.unknown(Applied(MODULO, two))),
        st.tuples(parts, parts).map(lambda two: Polynomial.unknown(Applied(MIN, two))),
        st.tuples(parts, parts, parts, parts).map(lambda four: Polynomial.unknown(Applied(CHOOSE, four))),
    )


RING = st.one_of(
    polynomials(),
    st.builds(lambda form, number: form * Polynomial.constant(number), polynomials(), st.fractions(-3, 3)),
    st.builds(lambda form, other: form + other, polynomials(), applied()),
)
FRACTIONS = st.fixed_dictionaries({name: st.fractions(Fraction(1, 9), 9, max_denominator=9) for name in NAMES})


@given(RING, RING, RING)
def test_the_laws_of_a_ring_hold(a: Polynomial, b: Polynomial, c: Polynomial) -> None:
    assert (a + b, a * b) == (b + a, b * a)
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert (a + ZERO, a * ONE, a * ZERO) == (a, a, ZERO)
    assert (a - a, ZERO - (ZERO - a)) == (ZERO, a)
    assert hash(a + b) == hash(b + a)


@given(RING, RING, st.integers(0, 3), FRACTIONS)
def test_computing_with_polynomials_is_computing_with_fractions(
    left: Polynomial, right: Polynomial, exponent: int, point: dict[str, Fraction]
) -> None:
    a, b = Fraction(left.value(point)), Fraction(right.value(point))

    assert (left + right).value(point) == a + b
    assert (left - right).value(point) == a - b
    assert (left * right).value(point) == a * b
    assert (left**exponent).value(point) == a**exponent


@given(RING, POINTS)
def test_a_polynomial_as_an_expression_has_its_value(form: Polynomial, point: dict[str, int]) -> None:
    assert evaluate(form.tree, point) == form.value(point)
    assert expand(form.tree).value(point) == form.value(point)
    assert expand(form.tree).unknowns <= form.unknowns


@given(polynomials(), polynomials(), POINTS)
def test_replacing_a_parameter_is_computing_it_first(
    form: Polynomial, other: Polynomial, point: dict[str, int]
) -> None:
    kept_whole = expand(parse("x // 3 + max(x, y)"))

    for one in (form, kept_whole):
        assert one.replaced({"x": other}).value(point) == one.value({**point, "x": other.value(point)})


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 7, 8, 1023, 1024])
def test_the_bits_of_a_number_are_a_logarithm_in_the_language(number: int) -> None:
    bits = Polynomial.unknown(Applied(BIT_LENGTH, (X,)))

    assert bits.value({"x": number}) == number.bit_length() == evaluate(bits.tree, {"x": number})


def test_terms_stand_in_a_fixed_order() -> None:
    form = ONE + Y + X * X * Y + X

    assert [dict(powers) for powers, _ in form.ordered] == [{"x": 2, "y": 1}, {"x": 1}, {"y": 1}, {}]
    assert str(form) == "1*x**2*y**1 + 1*x**1 + 1*y**1 + 1"

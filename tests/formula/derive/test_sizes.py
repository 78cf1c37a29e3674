from hypothesis import given
from hypothesis import strategies as st

from torchstone.formula.algebra.polynomial import Polynomial
from torchstone.formula.derive.symbolic_sizes import Condition, Path, Size, explore, form_of, join_forms, reduced

X, Y = Polynomial.unknown("x"), Polynomial.unknown("y")
VALUES = st.fixed_dictionaries({"x": st.integers(1, 99), "y": st.integers(1, 99)})


def size(name: str, value: int, path: Path) -> int:
    return Size.of(value, Polynomial.unknown(name), path)


@given(VALUES)
def test_arithmetic_keeps_value_and_form_together(values: dict[str, int]) -> None:
    path = Path()
    x, y = size("x", values["x"], path), size("y", values["y"], path)

    result = (3 * x + y - 1) * x * 8 // 8 + (x - 1).bit_length()

    assert form_of(result).value(values) == int(result)


@given(VALUES, VALUES)
def test_a_function_with_a_choice_is_followed_both_ways(at: dict[str, int], elsewhere: dict[str, int]) -> None:
    def function(path: Path) -> Polynomial:
        x, y = size("x", at["x"], path), size("y", at["y"], path)
        return form_of(min(x, y) * 5 + (7 if x > 10 else 0))

    form = explore(function, join_forms)

    expected = min(elsewhere["x"], elsewhere["y"]) * 5 + (7 if elsewhere["x"] > 10 else 0)
    assert form.value(elsewhere) == expected


def test_the_smaller_of_two_is_a_min() -> None:
    joined = join_forms(Condition(Polynomial.constant(4) * X * Y, Polynomial.constant(4) * X), X * Y, X)

    assert str(joined) == "1*min(1*y**1, 1)**1*x**1"


def test_what_both_answers_share_stands_outside() -> None:
    assert join_forms(Condition(X, Y), X, X) == X
    assert join_forms(Condition(X, Y), X + Y, Y) - Y == join_forms(Condition(X, Y), X, Polynomial())


def test_a_comparison_is_divided_by_what_its_sides_share() -> None:
    assert reduced(Polynomial.constant(4) * X * Y, Polynomial.constant(2) * X) == (
        Polynomial.constant(2) * Y,
        Polynomial.constant(1),
    )


def test_comparisons_that_sizes_decide_take_no_branch() -> None:
    path = Path()
    x = size("x", 5, path)

    assert x >= 1
    assert not x + 1 < x
    assert x != 0
    assert path.taken == []


def test_a_form_without_unknowns_is_a_plain_number() -> None:
    assert type(size("x", 5, Path()) * 0) is int

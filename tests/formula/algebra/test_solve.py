import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.errors import FormulaError
from torchstone.formula.algebra.growth import largest_within, rises
from torchstone.formula.language.evaluate import evaluate
from torchstone.formula.language.parse import parse

COST = parse("7 * B**2 + 3 * B + 100")


@given(st.integers(110, 10**12))
def test_the_answer_fits_and_the_next_one_does_not(limit: int) -> None:
    solution = largest_within(COST, "B", limit)

    assert solution is not None
    assert solution.cost == evaluate(COST, {"B": solution.value}) <= limit < solution.next_cost


def test_nothing_fits_a_limit_that_is_too_small() -> None:
    assert largest_within(COST, "B", 109) is None


def test_the_answer_stays_in_the_domain() -> None:
    solution = largest_within(parse("10 * B"), "B", 999, domain=[parse("B % 8 == 0")])

    assert solution is not None
    assert solution.value == 96
    assert largest_within(parse("10 * B"), "B", 75, domain=[parse("B % 8 == 0")]) is None


def test_a_cost_that_does_not_depend_on_the_parameter_is_refused() -> None:
    with pytest.raises(FormulaError, match="the cost does not depend on S"):
        largest_within(COST, "S", 5)


def test_a_cost_that_never_reaches_the_limit_is_refused() -> None:
    with pytest.raises(FormulaError, match="there is no limit to find"):
        largest_within(parse("B // B"), "B", 5)


@pytest.mark.parametrize(
    "text", ["3 * B + 1", "B - 100", "B // 8 + max(B, 7)", "B**2 / 3", "ceil(B / 64) * 64", "min(B, 9) * B"]
)
def test_formulas_that_never_fall_are_known_as_such(text: str) -> None:
    assert rises(parse(text))


@pytest.mark.parametrize(
    "text", ["-B", "B % 8", "1 / B", "B if B > 3 else 9", "8 // B", "max(3 - B, 0)", "5 * B - B**2"]
)
def test_formulas_that_may_fall_are_not_taken_for_rising(text: str) -> None:
    assert not rises(parse(text))

import pytest

from torchstone.formula.algebra.growth import DominantRange, dominant_ranges, growth_of
from torchstone.formula.language.expression import Expression
from torchstone.formula.language.parse import parse
from torchstone.formula.language.print import show


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("S * S * B + S", "O(S**2)"),
        ("S**2 - S * S + 7 * S", "O(S)"),
        ("(S + B)**3", "O(S**3)"),
        ("S // 64 * S", "O(S**2)"),
        ("S * S // (S + 1)", "O(S)"),
        ("S % 8 + B", "O(1)"),
        ("S**2 % S", "O(S)"),
        ("max(S, B) * S", "O(S**2)"),
        ("min(S, B) * S", "O(S)"),
        ("ceil(S / 8)", "O(S)"),
        ("ceil_log2(S) * S", "O(S)"),
        ("S if S > 5 else S**2", "O(S**2)"),
        ("(S > 5) * S", "O(S)"),
        ("2**S", "faster than any power of S"),
        ("S / (S + 1)", "O(1)"),
    ],
)
def test_the_order_of_growth_is_that_of_the_highest_power_left(text: str, order: str) -> None:
    (growth,) = [one for one in growth_of(parse(text)) if one.parameter == "S"]

    assert growth.text == order


def test_the_leading_factor_is_shown() -> None:
    first, second = growth_of(parse("2 * B * S**2 + 8 * B * S"))

    assert (first.parameter, second.parameter) == ("B", "S")
    assert second.leading == parse("2 * B")


def test_a_power_that_is_hidden_in_a_rounding_has_no_leading_factor() -> None:
    (growth,) = growth_of(parse("S // 64"))

    assert growth.leading is None


def parts(*texts: str) -> dict[str, Expression]:
    return {text: parse(text) for text in texts}


def test_the_largest_part_changes_where_the_terms_cross() -> None:
    found = dominant_ranges(parts("100 * S", "3 * S**2"), "S", {})

    assert [(one_range.part, one_range.first) for one_range in found] == [("100 * S", 1), ("3 * S**2", 34)]
    assert found[0].share == pytest.approx(100 / 103)


def test_three_parts_take_turns() -> None:
    found = dominant_ranges(parts("10**9", "10**4 * S", "S**2"), "S", {})

    assert [one_range.first for one_range in found] == [1, 31623]
    assert [one_range.part for one_range in dominant_ranges(parts("10**9", "10**5 * S", "S**2"), "S", {})] == [
        "10**9", "10**5 * S", "S**2",
    ]  # fmt: skip


def test_other_parameters_have_values() -> None:
    (first, second) = dominant_ranges(parts("H * S", "S**2"), "S", {"H": 4096})

    assert (first.first, second.first) == (1, 4097)


def test_a_part_that_always_leads_is_alone() -> None:
    assert dominant_ranges(parts("2 * S", "S"), "S", {}) == [DominantRange(part="2 * S", first=1, share=2 / 3)]
    assert dominant_ranges(parts("0 * S"), "S", {})[0].share == 0


def test_the_crossing_is_exact() -> None:
    small, large = parse("12345 * S"), parse("S * S")
    _, change = dominant_ranges({"small": small, "large": large}, "S", {})

    assert change.first == 12346
    assert show(large) == "${S} * ${S}"

"""Comparisons of sizes, read from runs with symbolic sizes."""

from collections.abc import Mapping

import torch
from torch import nn

from tests.formula.derive.branching import Above16, EvenOdd, Made, PlainNumber, of_tokens, strided
from tests.formula.derive.handwritten import HANDWRITTEN
from tests.formula.derive.handwritten_branches import BRANCHES
from torchstone.formula.derive.boundaries import find_boundaries
from torchstone.formula.derive.gate import separating_conditions

TOKENS = [{"B": 11, "S": 29, "hidden_size": 53}, {"B": 13, "S": 37, "hidden_size": 47}]


class Window(nn.Module):
    """Compares its length with a size of its own."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, : self.window] * 2 if x.shape[1] > self.window else x + 1


def test_a_comparison_of_a_size_is_a_boundary() -> None:
    found = find_boundaries(of_tokens(EvenOdd), TOKENS)
    assert [form.value({"S": length}) for form in found.conditions for length in (63, 64)] == [0, 1]
    assert found.complete

    threshold = find_boundaries(of_tokens(Above16), TOKENS).conditions[0]
    assert threshold.value({"S": 16}) != threshold.value({"S": 17})


def test_a_constant_that_follows_a_size_is_that_size() -> None:
    def make(sizes: Mapping[str, int]) -> Made:
        return Window(sizes["window"]), (torch.zeros(sizes["B"], sizes["S"]),)

    points = [{"B": 5, "S": 29, "window": 13}, {"B": 7, "S": 37, "window": 17}, {"B": 11, "S": 41, "window": 19}]
    (condition,) = find_boundaries(make, points).conditions
    assert condition.value({"S": 100, "window": 100}) != condition.value({"S": 101, "window": 100})


def test_rounded_sizes_are_found_and_sizes_of_one_are_edges() -> None:
    found = find_boundaries(strided, [{"B": 2, "H": 29, "W": 37, "channels": 5}])
    assert {form.value({"H": 30, "W": 40}) for form in found.quotients} == {15, 20}  # the sizes of the result
    assert found.edges


def test_guards_that_hold_at_all_sizes_are_left_out() -> None:
    make, _ = HANDWRITTEN["PaddedWindows"]
    points = [{"B": 5, "S": 29, "hidden_size": 13}, {"B": 7, "S": 37, "hidden_size": 17}]
    found = find_boundaries(make, points)
    assert len(found.conditions) == 1
    (divides,) = found.conditions
    assert divides.value({"S": 16, "hidden_size": 3}) != divides.value({"S": 17, "hidden_size": 3})


def test_a_size_that_is_read_as_a_plain_number_is_said_so() -> None:
    found = find_boundaries(of_tokens(PlainNumber), TOKENS)
    assert not found.complete
    assert "plain numbers" in found.reason


def test_wrong_points_are_separated_by_a_remainder_or_a_threshold() -> None:
    wrong, right = [{"S": 3}, {"S": 9}, {"S": 12}], [{"S": 4}, {"S": 8}, {"S": 10}]
    conditions = separating_conditions(wrong, right, ())
    assert {one.value({"S": 6}) for one in conditions} == {1}
    above = separating_conditions([{"S": 33}, {"S": 64}], [{"S": 2}, {"S": 32}], ())
    assert any(one.value({"S": 32}) != one.value({"S": 33}) for one in above)


def test_a_comparison_that_divides_by_zero_at_small_sizes_is_no_boundary_and_is_said_so() -> None:
    make, _ = BRANCHES["LargestEighth"]
    found = find_boundaries(make, TOKENS)
    for form in (*found.conditions, *found.quotients):
        form.value({"B": 1, "S": 1, "hidden_size": 1})  # would raise ZeroDivisionError
    assert not found.complete
    assert "divides by what is 0" in found.reason

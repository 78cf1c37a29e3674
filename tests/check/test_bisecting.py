from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.check.reduction import smallest_failing


@given(
    st.integers(1, 200).flatmap(
        lambda size: st.tuples(st.just(size), st.sets(st.integers(0, size - 1), min_size=1, max_size=3))
    )
)
def test_exactly_the_steps_that_are_needed_for_the_failure_are_left(planted: tuple[int, set[int]]) -> None:
    size, needed = planted

    found = smallest_failing(range(size), lambda group: needed <= set(group), most_runs=10_000)

    assert set(found) == needed


def test_a_pair_among_a_thousand_steps_takes_few_runs() -> None:
    asked: list[Sequence[int]] = []

    def fails(group: Sequence[int]) -> bool:
        asked.append(group)
        return {412, 413} <= set(group)

    assert smallest_failing(range(1000), fails, most_runs=1000) == (412, 413)
    assert len(asked) < 40


@pytest.mark.parametrize("most_runs", [0, 1, 5])
def test_when_the_runs_are_used_up_what_is_left_still_fails(most_runs: int) -> None:
    def fails(group: Sequence[int]) -> bool:
        return {3, 60} <= set(group)

    assert fails(smallest_failing(range(100), fails, most_runs=most_runs))


def test_no_group_is_asked_about_twice() -> None:
    asked: list[tuple[int, ...]] = []

    def fails(group: Sequence[int]) -> bool:
        asked.append(tuple(group))
        return 7 in group

    smallest_failing(range(16), fails, most_runs=100)

    assert len(asked) == len(set(asked))

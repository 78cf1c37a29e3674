import pytest

from torchstone.workers.shrink import Sizes, one_by_one, shrink_sizes


def test_everything_shrinks_at_once_where_that_still_fails() -> None:
    asked: list[Sizes] = []

    def still_fails(sizes: Sizes) -> bool:
        asked.append(dict(sizes))
        return True

    assert shrink_sizes([(64, 128), (128,)], one_by_one(still_fails), most_runs=20) == {64: 1, 128: 1}
    assert len(asked) == 1


def test_a_size_that_is_needed_stays() -> None:
    found = shrink_sizes([(64, 128)], one_by_one(lambda sizes: sizes.get(128, 128) >= 128), most_runs=20)

    assert found == {64: 1}


def test_a_size_shrinks_as_far_as_it_may() -> None:
    found = shrink_sizes([(64,)], one_by_one(lambda sizes: sizes.get(64, 64) >= 8), most_runs=20)

    assert found == {64: 8}


@pytest.mark.parametrize("most_runs", [0, 1, 3])
def test_no_more_is_tried_than_allowed(most_runs: int) -> None:
    asked: list[Sizes] = []

    def still_fails(sizes: Sizes) -> bool:
        asked.append(sizes)
        return False

    assert shrink_sizes([(64, 128, 32)], one_by_one(still_fails), most_runs=most_runs) == {}
    assert len(asked) == most_runs


def test_shapes_of_ones_are_small_enough() -> None:
    assert shrink_sizes([(1, 1), ()], one_by_one(lambda _: True), most_runs=5) == {}


def test_a_large_size_is_halved_for_as_long_as_it_fails() -> None:
    found = shrink_sizes([(1024,)], one_by_one(lambda sizes: sizes.get(1024, 1024) >= 100), most_runs=20)

    assert found == {1024: 128}


def test_a_further_pass_shrinks_what_another_size_held_up() -> None:
    def still_fails(sizes: Sizes) -> bool:
        wide, narrow = sizes.get(64, 64), sizes.get(32, 32)
        return narrow >= 2 and (wide >= 32 if narrow == 32 else wide >= 4)

    assert shrink_sizes([(64, 32)], one_by_one(still_fails), most_runs=100) == {64: 32, 32: 2}
    assert shrink_sizes([(64, 32)], one_by_one(still_fails), most_runs=100, passes=5) == {64: 4, 32: 2}


def test_no_candidate_is_run_twice() -> None:
    asked: list[Sizes] = []

    def still_fails(sizes: Sizes) -> bool:
        asked.append(sizes)
        return sizes.get(64, 64) >= 2 and sizes.get(32, 32) >= 16

    shrink_sizes([(64, 32)], one_by_one(still_fails), most_runs=100, passes=5)

    assert all(asked.count(sizes) == 1 for sizes in asked)

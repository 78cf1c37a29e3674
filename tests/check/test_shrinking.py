import pytest

from torchstone.check.repro import Sizes, shrink, smaller_program, smaller_shape


def test_everything_shrinks_at_once_where_that_still_fails() -> None:
    asked: list[Sizes] = []

    def still_fails(sizes: Sizes) -> bool:
        asked.append(dict(sizes))
        return True

    assert shrink([(64, 128), (128,)], still_fails, most_runs=20) == {64: 1, 128: 1}
    assert len(asked) == 1


def test_a_size_that_is_needed_stays() -> None:
    found = shrink([(64, 128)], lambda sizes: sizes.get(128, 128) >= 128, most_runs=20)

    assert found == {64: 1}


def test_a_size_shrinks_as_far_as_it_may() -> None:
    found = shrink([(64,)], lambda sizes: sizes.get(64, 64) >= 8, most_runs=20)

    assert found == {64: 8}


@pytest.mark.parametrize("most_runs", [0, 1, 3])
def test_no_more_is_tried_than_allowed(most_runs: int) -> None:
    asked: list[Sizes] = []

    def still_fails(sizes: Sizes) -> bool:
        asked.append(sizes)
        return False

    assert shrink([(64, 128, 32)], still_fails, most_runs=most_runs) == {}
    assert len(asked) == most_runs


def test_shapes_of_ones_are_small_enough() -> None:
    assert shrink([(1, 1), ()], lambda _: True, most_runs=5) == {}


def test_sizes_among_the_arguments_shrink_too() -> None:
    step = {
        "op": "aten.view.default",
        "kwargs": {"self": {"tensor": "a"}, "size": {"list": [2, 64]}, "dim": {"list": [64]}, "end": 64, "step": 64},
    }

    (smaller,) = smaller_program({"steps": [step]}, {64: 4})["steps"]

    assert smaller["kwargs"] == {
        "self": {"tensor": "a"},
        "size": {"list": [2, 4]},
        "dim": {"list": [64]},
        "end": 4,
        "step": 64,
    }


def test_a_shape_shrinks_by_its_sizes() -> None:
    assert smaller_shape((2, 64, 3), {64: 1}) == (2, 1, 3)

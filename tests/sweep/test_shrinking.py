from tests.sweep.builders import mm, vector
from torchstone.record.value import tensors_in
from torchstone.record.vector import Vector
from torchstone.sweep.generate import shrink


def shapes(one: Vector) -> list[tuple[int, ...]]:
    assert one.configuration is not None
    return [spec.shape for argument in one.configuration.arguments for spec in tensors_in(argument.value)]


def test_every_size_goes_down_as_far_as_it_still_fails() -> None:
    def still_fails(candidates: list[Vector]) -> Vector | None:
        return next((one for one in candidates if shapes(one)[0][1] >= 8), None)

    small = shrink(vector(mm(64, 32, 128)), still_fails)

    assert shapes(small) == [(1, 8), (8, 1)]


def test_what_stops_failing_at_once_stays_as_it_is() -> None:
    original = vector(mm(4, 8, 16))

    assert shrink(original, lambda _: None) is original


def test_it_ends_when_nothing_is_left_to_make_smaller() -> None:
    small = shrink(vector(mm(4, 8, 16)), lambda candidates: candidates[0] if candidates else None)

    assert {size for shape in shapes(small) for size in shape} == {1}

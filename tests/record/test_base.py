import pytest

from torchstone.record.base import Record


class Point(Record, frozen=True, kw_only=True):
    x: int
    y: int = 0


def test_a_record_does_not_change() -> None:
    point = Point(x=1)

    with pytest.raises(AttributeError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        point.z = 2  # type: ignore[attr-defined]


def test_a_record_takes_keywords_only() -> None:
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[call-arg]


def test_equal_records_are_one_member_of_a_set() -> None:
    assert len({Point(x=1), Point(x=1, y=0), Point(x=2)}) == 2

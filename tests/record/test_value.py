import pytest
from hypothesis import given

from tests.record import strategies
from tests.report.traces import spec
from torchstone.record.value import Absent, Atom, Entries, Fields, Items, Opaque, Value, show_value, tensors_in

CACHE = Fields(
    class_name="transformers.Cache",
    fields=(
        ("keys", Items(kind="list", items=(spec(1), spec(2)))),
        ("seen", 4),
        ("more", Entries(entries=(("a", spec(3)), (spec(9), None)))),
    ),
)


def test_tensors_are_found_in_the_order_they_stand() -> None:
    assert list(tensors_in(CACHE)) == [spec(1), spec(2), spec(3)], "a key of a dictionary is no argument"


@pytest.mark.parametrize(
    "value", [None, 1, "text", Atom(kind="dtype", text="float32"), Opaque(class_name="x"), Absent()]
)
def test_a_value_without_tensors_has_none(value: Value) -> None:
    assert list(tensors_in(value)) == []


@given(strategies.values)
def test_a_list_holds_the_tensors_of_its_items(value: Value) -> None:
    assert list(tensors_in(Items(kind="list", items=(value, value)))) == 2 * list(tensors_in(value))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (True, "True"),
        (0.1, "0.1"),
        ("it's", '"it\'s"'),
        (spec(1, 8), "float32[1, 8]"),
        (Atom(kind="float", text="-inf"), "-inf"),
        (Items(kind="list", items=(1, 2)), "[1, 2]"),
        (Items(kind="tuple", items=(1,)), "(1,)"),
        (Items(kind="tuple"), "()"),
        (Items(kind="set", items=(1, 2)), "{1, 2}"),
        (Entries(entries=(("a", 1),)), "{'a': 1}"),
        (Fields(class_name="pkg.Output", fields=(("logits", spec(2)),)), "Output(logits=float32[2])"),
        (Opaque(class_name="pkg.Config"), "<Config>"),
        (Absent(), "nothing"),
    ],
)
def test_values_are_shown_as_python_writes_them(value: Value, shown: str) -> None:
    assert show_value(value) == shown


@given(strategies.values)
def test_every_value_can_be_shown_and_shows_its_tensors(value: Value) -> None:
    shown = show_value(value)

    assert all(str(tensor) in shown for tensor in tensors_in(value))

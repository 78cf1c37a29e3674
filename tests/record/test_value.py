import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.record import strategies
from tests.report.traces import spec
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import (
    Absent,
    Atom,
    Entries,
    Fields,
    Items,
    Opaque,
    Value,
    entries_from_json,
    entry,
    json_from_value,
    show_value,
    tensors_in,
    value_from_json,
)

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


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(anything)
def test_nothing_is_lost(document: Any) -> None:
    again = json_from_value(value_from_json(document))

    assert json.dumps(again, sort_keys=True) == json.dumps(document, sort_keys=True)


@given(st.dictionaries(st.text(max_size=4), st.integers(), max_size=4))
def test_the_order_of_keys_has_no_meaning(document: dict[str, int]) -> None:
    turned = dict(reversed(document.items()))

    assert value_from_json(document) == value_from_json(turned)


@pytest.mark.parametrize(
    ("number", "value"),
    [
        (16802199791220172571, Atom(kind="int", text="16802199791220172571")),
        (float("-inf"), Atom(kind="float", text="-inf")),
        (True, True),
        (1.0, 1.0),
    ],
)
def test_numbers_that_records_have_no_room_for_become_atoms(number: float, value: object) -> None:
    assert repr(value_from_json(number)) == repr(value)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError, match="set is not a JSON value"):
        value_from_json({1})


def test_values_of_other_kinds_become_what_json_can_say() -> None:
    value = Fields(
        class_name="Thing", fields=(("a", Items(kind="tuple", items=(1, Opaque(class_name="X", text="x")))),)
    )

    assert json_from_value(value) == {"type": "Thing", "a": [1, "x"]}
    assert json_from_value(TensorSpec(shape=(2,), dtype="int8")) == "int8[2]"


def test_an_entry_is_found_by_its_path() -> None:
    value = entries_from_json({"a": {"b": [1]}})

    assert entry(value, "a", "b") == Items(kind="list", items=(1,))
    assert entry(value, "a", "c") is None
    assert entry(value, "a", "b", "c") is None
    assert entry(value) == value
    assert isinstance(entry(value, "a"), Entries)

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.record.tensor import TensorSpec
from torchstone.record.value import (
    Atom,
    Entries,
    Fields,
    Items,
    Opaque,
    entries_from_json,
    entry,
    json_from_value,
    value_from_json,
)

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

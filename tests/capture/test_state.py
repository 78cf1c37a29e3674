import random
from collections.abc import Hashable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.capture.nets import CacheObject, PlainObject, cache
from torchstone.capture.state_views import EntryKeys, NotComparableError, StateView, is_state, key_of


def shape_of(tensor: Tensor) -> Hashable:
    return tuple(tensor.shape)


def view(value: object, layer: int) -> StateView:
    return StateView(value, layer, EntryKeys(shape_of))


def test_middle_layers_see_the_same_state() -> None:
    held = cache(5)
    seen = []
    for layer in range(5):
        before = view(held, layer)
        seen.append((before.own_key, before.rest_key))
        held.update(torch.zeros(1, 2, 8), layer)

    assert seen[1] == seen[2] == seen[3]


def test_the_first_and_the_last_layer_see_another_state() -> None:
    held = cache(3)
    keys = {view(held, layer).rest_key for layer in range(3)}

    assert len(keys) == 3


def test_what_a_layer_did_to_its_entry_can_be_done_again() -> None:
    held = cache(3)
    before = view(held, 1)
    held.update(torch.zeros(1, 2, 8), 1)

    changes = before.changes_to(view(held, 1))

    assert [(change.entry, change.path) for change in changes] == [(0, ("keys",)), (0, ("length",))]
    other = view(held, 2)
    for change in changes:
        other.entries[change.entry].set(change.path, change.value)
    assert held.entries[2].length == 2


def test_an_entry_may_be_a_value_in_a_dictionary() -> None:
    held = CacheObject(done={0: False, 1: False}, entries=[])
    before = view(held, 1)
    held.__dict__["done"][1] = True

    (change,) = before.changes_to(view(held, 1))
    view(held, 0).entries[change.entry].set(change.path, change.value)

    assert held.__dict__["done"] == {0: True, 1: True}


def test_what_a_layer_did_inside_a_dictionary_of_its_entry_can_be_done_again() -> None:
    held = CacheObject(entries=[PlainObject(states={0: None}, rows=[1]) for _ in range(3)])
    before = view(held, 1)
    held.entries[1].states[0], held.entries[1].states["more"] = torch.zeros(2), 5
    held.entries[1].rows.append(2)

    changes = before.changes_to(view(held, 1))

    assert {change.path for change in changes} == {("states", 0), ("states", "more"), ("rows", 1)}


def test_a_change_deep_inside_an_entry_cannot_be_done_again() -> None:
    held = CacheObject(entries=[PlainObject(states={0: PlainObject(length=0)}) for _ in range(3)])
    before = view(held, 1)
    held.entries[1].states[0].length = 1

    with pytest.raises(NotComparableError):
        before.changes_to(view(held, 1))


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held.__dict__.update(seen=1),
        lambda held: held.entries.append(PlainObject(keys=None, length=0)),
        lambda held: held.update(torch.zeros(1, 2, 8), 0),
        lambda held: setattr(held.entries[1], "keys", [torch.zeros(1)]),
        lambda held: delattr(held.entries[1], "length"),
    ],
)
def test_what_reaches_beyond_the_own_entry_cannot_be_done_again(change: object) -> None:
    held = cache(3)
    before = view(held, 1)
    assert callable(change)
    change(held)

    with pytest.raises(NotComparableError):
        before.changes_to(view(held, 1))


def test_entries_are_looked_at_again_when_they_change() -> None:
    keys = EntryKeys(shape_of)
    entries: list[object] = [PlainObject(keys=None), PlainObject(keys=None, length=1), PlainObject(rows=[0])]

    def around_the_second() -> tuple[frozenset[int], frozenset[int]]:
        return keys.around(entries, entries.copy(), slice(1, 2))

    first = around_the_second()
    assert around_the_second() == first
    entries[0].__dict__["keys"] = torch.zeros(3)
    second = around_the_second()
    assert second[0] != first[0]
    assert second[1] == first[1]
    entries[2].__dict__["rows"][0] = 1
    third = around_the_second()
    assert third[0] == second[0]
    assert third[1] != second[1]
    entries[0] = PlainObject(keys=None)
    assert around_the_second() == (first[0], third[1])


@pytest.mark.parametrize("seed", range(20))
def test_entries_have_equal_keys_where_they_look_equal_however_often_they_changed(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - picks cases
    keys, container = EntryKeys(shape_of), object()
    values = (None, 0, False, 1, True, 2.5, "text", torch.zeros(2), torch.zeros(3), [1], {"a": 1})
    entries: list[Any] = [PlainObject(keys=None, length=0) for _ in range(5)]
    found: dict[frozenset[Hashable], frozenset[int]] = {}
    for _ in range(60):
        place = dice.randrange(len(entries))
        change = dice.randrange(5)
        if change == 0:
            setattr(entries[place], dice.choice(("keys", "length", "more")), dice.choice(values))
        elif change == 1:
            entries[place].keys = torch.zeros(dice.randrange(1, 4))  # the id of one that died may be given again
        elif change == 2:
            vars(entries[place]).pop("more", None)
        elif change == 3:
            entries[place] = PlainObject(keys=None, length=0)
        else:
            entries.append(PlainObject(keys=None, length=dice.randrange(2)))
        own = dice.randrange(len(entries) + 1)
        sides = keys.around(container, entries.copy(), slice(own, own + 1))
        for part, side in zip((entries[:own], entries[own + 1 :]), sides, strict=True):
            looks = frozenset(key_of(entry, shape_of) for entry in part)
            assert found.setdefault(looks, side) == side
    assert len({*found.values()}) == len(found)


def test_only_objects_with_attributes_have_a_state() -> None:
    assert is_state(PlainObject())
    assert not any(map(is_state, (3, "text", None, torch.zeros(1), torch.nn.Linear(1, 1), len, PlainObject)))


def test_what_is_nested_too_deep_is_not_compared() -> None:
    deep: object = 1
    for _ in range(20):
        deep = [deep]

    with pytest.raises(NotComparableError):
        key_of(deep, shape_of)

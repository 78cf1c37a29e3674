from collections import namedtuple
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest
import torch

from tests.capture.nets import cache
from torchstone.capture.describe import Describer, describe_plain, is_plain, spec_of
from torchstone.record.value import Atom, Entries, Fields, Items, Opaque

Pair = namedtuple("Pair", ["left", "right"])


class Colour(Enum):
    RED = 1


@dataclass
class Output:
    logits: Any
    loss: Any = None


@pytest.mark.parametrize(
    ("value", "described"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (1 << 70, Atom(kind="int", text=str(1 << 70))),
        (0.5, 0.5),
        (float("nan"), Atom(kind="float", text="nan")),
        (float("-inf"), Atom(kind="float", text="-inf")),
        ("text", "text"),
        ("\ud800", "\\ud800"),
        (torch.float32, Atom(kind="dtype", text="float32")),
        (torch.device("cpu"), Atom(kind="device", text="cpu")),
        (torch.channels_last, Atom(kind="memory_format", text="channels_last")),
        (torch.strided, Atom(kind="layout", text="strided")),
        (Colour.RED, Atom(kind="enum", text="Colour.RED")),
        (slice(1, None, 2), Atom(kind="slice", text="1:None:2")),
        (..., Atom(kind="ellipsis", text="...")),
        (1j, Atom(kind="complex", text="1j")),
    ],
)
def test_scalars_become_what_json_can_hold(value: object, described: object) -> None:
    assert describe_plain(value) == described


def test_structures_keep_their_kind_and_order() -> None:
    tensor = torch.zeros(2)
    spec = spec_of(tensor)
    describer = Describer()

    described = describer.describe({"a": [tensor, None], "b": (1,), "c": Pair(1, tensor), "d": Output(logits=tensor)})

    name = f"{__name__}.Output"
    assert isinstance(described, Entries)
    assert dict(described.entries)["a"] == Items(kind="list", items=(spec, None))
    assert dict(described.entries)["b"] == Items(kind="tuple", items=(1,))
    assert dict(described.entries)["c"] == Fields(class_name=f"{__name__}.Pair", fields=(("left", 1), ("right", spec)))
    assert dict(described.entries)["d"] == Fields(class_name=name, fields=(("logits", spec), ("loss", None)))
    assert len(describer.tensors) == 3


def test_an_object_is_looked_into_for_its_tensors_only() -> None:
    with_tensor = Describer().describe(cache(1, keys=torch.zeros(1, 2)))
    without = Describer().describe(cache(1))

    assert isinstance(with_tensor, Fields)
    assert isinstance(without, Opaque)


def test_with_a_layer_only_its_own_entry_is_described() -> None:
    held = cache(4, keys=torch.zeros(1, 2))
    describer = Describer(layer=2)

    describer.describe(held)

    assert len(describer.tensors) == 1
    assert describer.tensors[0] is held.entries[2].keys


def test_an_object_inside_itself_is_described_once() -> None:
    loop: list[Any] = [1]
    loop.append(loop)

    assert Describer().describe(loop) == Items(kind="list", items=(1, Opaque(class_name="builtins.list")))


def test_a_stand_in_is_written_with_the_device_it_stands_for() -> None:
    tensor = torch.zeros(2, device="meta")

    assert spec_of(tensor, stand_in=True).device == "cpu"
    assert spec_of(tensor).device == "meta"


def test_a_spec_tells_strides_offsets_and_sparse_layouts() -> None:
    part = torch.zeros(4, 6)[1:, ::2]

    assert (spec_of(part).stride, spec_of(part).storage_offset) == ((6, 2), 6)
    sparse = spec_of(torch.zeros(2, 2).to_sparse())
    assert (sparse.layout, sparse.stride) == ("sparse_coo", None)


def test_plain_is_told_by_the_type_alone() -> None:
    class Slow:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

    assert is_plain(3)
    assert not is_plain(Slow())

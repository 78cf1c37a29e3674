from collections import OrderedDict
from enum import Enum

import torch

from tests.reference.nets import Answer
from torchstone.record.reference import Group, NotKept, Saved
from torchstone.reference.structure import fill_in, plain_part, structure_of, tensors_of


class Colour(Enum):
    RED = 1


def nested() -> dict[str, object]:
    return {
        "a": torch.ones(2),
        "b": (torch.zeros(1), [torch.ones(3), 7, None, True, "word"]),
        "c": Answer(logits=torch.ones(1), states=[torch.ones(4)]),
    }


def test_a_name_is_the_way_to_the_tensor() -> None:
    names = [name for name, _ in tensors_of(nested(), "outputs")]

    assert names == ["outputs/a", "outputs/b/0", "outputs/b/1/0", "outputs/c/logits", "outputs/c/states/0"]


def test_a_single_tensor_has_the_name_itself() -> None:
    tensor = torch.ones(1)

    assert dict(tensors_of(tensor, "outputs")) == {"outputs": tensor}
    assert structure_of(tensor, "outputs") == Saved(name="outputs")


def test_names_without_a_beginning_start_with_the_key() -> None:
    assert [name for name, _ in tensors_of({"x": {"y": torch.ones(1)}}, "")] == ["x/y"]


def test_the_structure_names_exactly_the_tensors_that_are_found() -> None:
    def names(part: object) -> list[str]:
        if isinstance(part, Saved):
            return [part.name]
        return [name for _, inner in part.parts for name in names(inner)] if isinstance(part, Group) else []

    assert names(structure_of(nested(), "o")) == [name for name, _ in tensors_of(nested(), "o")]


def test_a_structure_becomes_plain_containers_with_the_same_tensors() -> None:
    value = nested()
    tensors = dict(tensors_of(value, "o"))

    plain = plain_part(structure_of(value, "o"), tensors)

    assert isinstance(plain, dict)
    assert plain["a"] is value["a"]
    assert isinstance(plain["b"], tuple)
    assert plain["b"][1][1:] == [7, None, True, "word"]
    assert plain["c"]["name"] == "answer"
    assert plain["c"]["states"][0].shape == (4,)


def test_what_is_not_kept_is_named() -> None:
    part = structure_of({"t": torch.float16, "inf": float("inf"), "colour": Colour.RED}, "o")

    assert isinstance(part, Group)
    kept = dict(part.parts)
    assert kept["t"] == NotKept(class_name="dtype", text="torch.float16")
    assert kept["inf"] == NotKept(class_name="float", text="inf")
    assert isinstance(kept["colour"], NotKept)


def test_a_value_inside_itself_ends() -> None:
    loop: list[object] = [torch.ones(1)]
    loop.append(loop)

    assert len(list(tensors_of(loop, "o"))) == 1
    assert isinstance(structure_of(loop, "o"), Group)


def test_a_dictionary_that_is_more_than_one_says_its_class() -> None:
    part = structure_of(OrderedDict(x=1), "o")

    assert part == Group(kind="dict", class_name="OrderedDict", parts=(("x", 1),))


def test_values_are_filled_in_place_and_misfits_are_told() -> None:
    value = {"x": torch.zeros(2), "y": torch.zeros(3), "z": torch.zeros(1)}
    golden = {"i/x": torch.ones(2), "i/y": torch.ones(4), "i/new": torch.ones(1)}

    misfits = fill_in(value, "i", golden)

    assert value["x"].tolist() == [1, 1]
    assert misfits == ["i/y", "i/z", "i/new"]

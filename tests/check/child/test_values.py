import json
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from torchstone.check.child.values import Reader, UnserializableError, Writer, copied


class Color(Enum):
    RED = 1


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Box:
    content: Any
    labels: list[str] = field(default_factory=list)


@dataclass
class Slotted:
    __slots__ = ("content",)
    content: Any


class Output(OrderedDict[str, Any]):
    """A dictionary with attributes, as model outputs are."""


class Cache:
    made = 0

    def __init__(self) -> None:
        Cache.made += 1
        self.layers: list[Any] = []


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
nested = st.recursive(
    plain, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


def there_and_back(value: Any, model: nn.Module | None = None) -> Any:
    modules = {} if model is None else {id(module): path for path, module in model.named_modules()}
    writer = Writer("arg", modules)
    text = json.dumps(writer.write(value), allow_nan=False)
    return Reader(writer.tensors, model).read(json.loads(text))


@given(nested)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert there_and_back(value) == value


@pytest.mark.parametrize(
    "value",
    [
        torch.float32,
        torch.device("cpu"),
        torch.channels_last,
        torch.strided,
        slice(1, None, 2),
        ...,
        float("inf"),
        1 + 2j,
        Color.RED,
        torch.Size([2, 3]),
        {1, 2},
        Box,
        len,
        Point(1, (2, 3)),
        Box(content=Box(content=1), labels=["a"]),
        {"a": {1: None}},
        OrderedDict(a=1),
    ],
    ids=repr,
)
def test_what_json_has_no_word_for_comes_back(value: Any) -> None:
    found = there_and_back(value)

    assert found == value
    assert type(found) is type(value)


def test_tensors_come_back_with_values_strides_and_grad() -> None:
    value = {"turned": torch.arange(6.0).reshape(2, 3).t(), "leaf": torch.ones(2, requires_grad=True)}

    found = there_and_back(value)

    assert torch.equal(found["turned"], value["turned"])
    assert found["turned"].stride() == value["turned"].stride()
    assert found["leaf"].requires_grad


def test_a_tensor_that_is_met_twice_is_one_tensor_again() -> None:
    tensor = torch.ones(2)

    first, second = there_and_back((tensor, tensor))

    assert first is second


def test_what_is_read_back_can_be_written_to_without_harm() -> None:
    writer = Writer("arg", {})
    written = writer.write([torch.ones(2)])

    Reader(writer.tensors).read(written)[0].add_(1)

    assert torch.equal(Reader(writer.tensors).read(written)[0], torch.ones(2))


def test_an_object_is_made_again_without_calling_its_class() -> None:
    cache = Cache()
    cache.layers = [torch.ones(1), cache]
    before = Cache.made

    found = there_and_back(cache)

    assert Cache.made == before
    assert found.layers[1] is found
    assert torch.equal(found.layers[0], torch.ones(1))


def test_a_dictionary_with_attributes_keeps_both() -> None:
    value = Output(logits=torch.ones(1))
    value.loss = None  # type: ignore[attr-defined]

    found = there_and_back(value)

    assert list(found) == ["logits"]
    assert vars(found)["loss"] is None


def test_slots_are_read() -> None:
    assert there_and_back(Slotted(content=3)).content == 3


def test_modules_of_the_model_are_known_by_their_path() -> None:
    model = nn.Sequential(nn.ReLU())

    assert there_and_back(model[0], model) is model[0]


def local_class() -> Any:
    class Local:
        pass

    return Local()


@pytest.mark.parametrize(
    "make",
    [nn.ReLU, local_class, lambda: lambda: None, object, lambda: iter([])],
    ids=["foreign module", "local class", "lambda", "bare object", "iterator"],
)
def test_what_has_no_written_form_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(UnserializableError):
        there_and_back([make()])


def test_a_class_that_the_model_has_not_imported_is_not_imported() -> None:
    assert "antigravity" not in sys.modules

    with pytest.raises(KeyError):
        Reader({}).read({"name": "antigravity:webbrowser"})

    assert "antigravity" not in sys.modules


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UnserializableError, match="unknown kind"):
        Reader({}).read({"pickle": "..."})


def test_a_copy_has_memory_of_its_own() -> None:
    tensor = torch.ones(2, 3).t()

    twin = copied(tensor)
    twin.zero_()

    assert isinstance(twin, Tensor)
    assert twin.stride() == tensor.stride()
    assert torch.equal(tensor, torch.ones(3, 2))

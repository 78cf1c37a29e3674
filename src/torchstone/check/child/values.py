"""The arguments of a module call <-> JSON and named tensors, so that nothing that runs code is ever read back.

An object is written as its class and its attributes, and made again without calling its class. Only classes that the
model itself has imported are made again.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from torchstone.backends.program import read_atom

_DEEPEST = 24
_ATOMS = {torch.dtype: "dtype", torch.device: "device", torch.layout: "layout", torch.memory_format: "memory_format"}


class UnserializableError(Exception):
    """A value holds something that has no written form."""


class Writer:
    """Writes values; the tensors met are in `tensors`, copied, under `prefix` and a number."""

    def __init__(self, prefix: str, modules: Mapping[int, str]) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._prefix = prefix
        self._modules = modules  # id of each module of the model -> its path
        self._tensor_names: dict[int, str] = {}
        self._objects: dict[int, int] = {}
        self._alive: list[object] = []  # an id means something only while its object lives

    def write(self, value: object, depth: int = 0) -> Any:
        """A value as JSON."""
        if depth > _DEEPEST:
            msg = f"a {type(value).__name__} is nested too deep"
            raise UnserializableError(msg)
        if isinstance(value, Tensor):
            return {"tensor": self._tensor(value)}
        simple = _simple(value)
        return simple if simple is not NotImplemented else self._named_or_nested(value, depth + 1)

    def _tensor(self, tensor: Tensor) -> str:
        name = self._tensor_names.get(id(tensor))
        if name is None:
            name = self._tensor_names[id(tensor)] = f"{self._prefix}.{len(self._tensor_names)}"
            self._alive.append(tensor)
            self.tensors[name] = copied(tensor)
        return name

    def _named_or_nested(self, value: object, depth: int) -> object:
        if isinstance(value, nn.Module):
            if id(value) in self._modules:
                return {"module": self._modules[id(value)]}
            msg = f"a {type(value).__name__} that is not part of the model"
            raise UnserializableError(msg)
        if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
            return {"name": _name_of(value)}
        if isinstance(value, Enum):
            return {"enum": [_name_of(type(value)), value.name]}
        if isinstance(value, torch.Size):
            return {"size": list(value)}
        if isinstance(value, tuple):
            items = [self.write(item, depth) for item in value]
            return {"tuple": items} if type(value) is tuple else {"named tuple": [_name_of(type(value)), items]}
        if isinstance(value, (set, frozenset)):
            return {"set": [self.write(item, depth) for item in sorted(value, key=repr)]}
        return self._numbered(value, depth)

    def _numbered(self, value: object, depth: int) -> object:
        """What may be met again, or be inside itself."""
        if id(value) in self._objects:
            return {"again": self._objects[id(value)]}
        number = self._objects[id(value)] = len(self._objects)
        self._alive.append(value)
        if type(value) is list:
            return {"list": [self.write(item, depth) for item in value], "number": number}
        written: dict[str, object] = {"number": number}
        if isinstance(value, Mapping):
            written["items"] = [[self.write(key, depth), self.write(item, depth)] for key, item in value.items()]
        if type(value) is not dict:
            written["class"] = _name_of(type(value))
            written["fields"] = [[name, self.write(part, depth)] for name, part in _attributes(value).items()]
        return {"object": written}


class Reader:
    """Makes values again from their JSON and tensors."""

    def __init__(self, tensors: Mapping[str, Tensor], model: nn.Module | None = None) -> None:
        self._tensors = tensors
        self._model = model
        self._objects: dict[int, Any] = {}
        self._copies: dict[str, Tensor] = {}

    def read(self, written: object) -> Any:
        """One value; tensors are copies, the same one wherever it is met again."""
        if not isinstance(written, dict):
            return written
        kind = next(iter(written))
        content = written[kind]
        match kind:
            case "tensor":
                if content not in self._copies:
                    self._copies[content] = copied(self._tensors[content])
                return self._copies[content]
            case "atom":
                return read_atom(content["kind"], content["text"])
            case "tuple":
                return tuple(map(self.read, content))
            case "set":
                return set(map(self.read, content))
            case "size":
                return torch.Size(content)
            case _:
                return self._rebuild(kind, content, written)

    def _rebuild(self, kind: str, content: Any, written: dict[str, Any]) -> object:
        match kind:
            case "again":
                return self._objects[content]
            case "list":
                items = self._objects[written["number"]] = []
                items.extend(map(self.read, content))
                return items
            case "object":
                return self._object(content)
            case "name":
                return _named(content)
            case "enum":
                return getattr(_named(content[0]), content[1])
            case "named tuple":
                return _named(content[0])._make(map(self.read, content[1]))
            case "module" if self._model is not None:
                return self._model.get_submodule(content)
            case _:
                msg = f"a written value has the unknown kind {kind!r}"
                raise UnserializableError(msg)

    def _object(self, content: dict[str, Any]) -> Any:
        known = _named(content["class"]) if "class" in content else dict
        made = self._objects[content["number"]] = known.__new__(known)
        items = [(self.read(key), self.read(item)) for key, item in content.get("items", ())]
        if isinstance(made, dict):
            for key, item in items:
                _set_item(made, key, item)
        for name, part in content.get("fields", ()):
            object.__setattr__(made, name, self.read(part))
        return made


def _set_item(made: Any, key: Any, item: Any) -> None:
    """Put an item into a dictionary without the say of its class."""
    base = OrderedDict if isinstance(made, OrderedDict) else dict
    base.__setitem__(made, key, item)


class Buffers:
    """The buffers of a module as they are now, to be put back before a run: the run before may have written to them."""

    def __init__(self, module: nn.Module) -> None:
        plain = [one for one in module.buffers() if one.layout is torch.strided and not one.is_meta]
        self._kept = [(one, one.detach().clone()) for one in plain]

    def restore(self) -> None:
        """Put back what has changed."""
        with torch.no_grad():
            for buffer, kept in self._kept:
                if buffer.shape == kept.shape and not torch.equal(buffer, kept):  # NaN is put back each time
                    buffer.copy_(kept)


def copied(tensor: Tensor) -> Tensor:
    """The same values in memory of their own, laid out as they were."""
    return tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_(tensor.requires_grad)


def _simple(value: object) -> object:
    """JSON for what has nothing inside; NotImplemented for the rest."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if isfinite(value) else {"atom": {"kind": "float", "text": str(value)}}
    kind = _ATOMS.get(type(value))
    if kind is not None:
        return {"atom": {"kind": kind, "text": str(value)}}
    if isinstance(value, complex):
        return {"atom": {"kind": "complex", "text": str(value)}}
    if isinstance(value, slice):
        return {"atom": {"kind": "slice", "text": f"{value.start}:{value.stop}:{value.step}"}}
    if value is Ellipsis:
        return {"atom": {"kind": "ellipsis", "text": "..."}}
    return NotImplemented


def _attributes(value: object) -> dict[str, object]:
    held = getattr(value, "__dict__", None)
    if held is not None:
        return dict(held)
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    msg = f"a {type(value).__module__}.{type(value).__qualname__} cannot be looked into"
    raise UnserializableError(msg)


def _name_of(value: Any) -> str:
    name = f"{value.__module__}:{value.__qualname__}"
    try:
        found = _named(name)
    except (KeyError, AttributeError):
        found = None
    if found is not value:
        msg = f"{name} cannot be found again by its name"
        raise UnserializableError(msg)
    return name


def _named(name: str) -> Any:
    module, _, path = name.partition(":")
    found: object = sys.modules[module]
    for part in path.split("."):
        found = getattr(found, part)
    return found

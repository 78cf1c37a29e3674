"""Nested arguments and outputs <-> plain tensors.

Lists, tuples and dictionaries are those of torch.utils._pytree. It knows no more than what was registered with it, and
models return what is not registered: output classes, caches, dataclasses. So other mappings, dataclasses and objects
are looked into, too, one level at a time; a value inside itself is not looked into again.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

_DEEPEST = 12
_ATOMS = (int, float, bool, str, bytes, complex, type(None), Enum, torch.dtype, torch.device, torch.layout,
          torch.memory_format)  # fmt: skip
_CLOSED = (nn.Module, type, ModuleType, FunctionType, MethodType, BuiltinFunctionType, torch.Generator)
_CONTAINERS = (list, tuple, dict, OrderedDict, defaultdict, deque)  # rebuilt by torch.utils._pytree


@dataclass(frozen=True)
class Slot:
    """The place of a tensor: its number among the flat ones."""

    number: int


@dataclass(frozen=True)
class Branch:
    """A container or object with tensors somewhere inside; the original is the pattern to build the next one from."""

    original: Any
    parts: dict[Any, Any]  # key, position or attribute -> Slot, Branch or the value itself


def parts_of(value: object) -> dict[object, object] | None:
    """What a value is made of, by key, field, position or attribute; None when it is not looked into."""
    if isinstance(value, (*_ATOMS, Tensor, *_CLOSED)):
        return None
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple, deque)):
        names = getattr(value, "_fields", None) or range(len(value))
        return dict(zip(names, value, strict=True))
    if is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in fields(value)}
    attributes = getattr(value, "__dict__", None)
    return None if attributes is None else dict(attributes)


def parts_within(value: object, above: tuple[int, ...]) -> dict[object, object] | None:
    """The parts of a value that lies inside the values with these ids; None for one of them, or one too deep."""
    return None if id(value) in above or len(above) > _DEEPEST else parts_of(value)


def leaves(value: object, name: str = "", *, separator: str = ".") -> Iterator[tuple[str, object]]:
    """Everything in a value that is not looked into, with its path: "logits", "past_key_values.layers.0.keys"."""
    return _leaves(value, name, separator, ())


def named_tensors(value: object, name: str = "", *, separator: str = ".") -> Iterator[tuple[str, Tensor]]:
    """Every tensor inside a value with its path, in order."""
    return ((path, leaf) for path, leaf in leaves(value, name, separator=separator) if isinstance(leaf, Tensor))


def _leaves(value: object, path: str, separator: str, above: tuple[int, ...]) -> Iterator[tuple[str, object]]:
    inside = parts_within(value, above)
    if inside is None:
        yield path, value
        return
    for key, part in inside.items():
        yield from _leaves(part, f"{path}{separator}{key}" if path else str(key), separator, (*above, id(value)))


def flatten(value: object) -> tuple[list[Tensor], Any]:
    """All tensors of a value, each once, and the structure to put others in their places."""
    tensors: list[Tensor] = []
    numbers: dict[int, int] = {}

    def read(part: object, above: tuple[int, ...]) -> Any:
        if isinstance(part, Tensor):
            if id(part) not in numbers:
                numbers[id(part)] = len(tensors)
                tensors.append(part)
            return Slot(numbers[id(part)])
        inside = parts_within(part, above)
        if not inside:
            return part
        seen = {key: read(inner, (*above, id(part))) for key, inner in inside.items()}
        changed = any(isinstance(inner, (Slot, Branch)) for inner in seen.values())
        return Branch(part, seen) if changed else part

    structure = read(value, ())
    return tensors, structure


def unflatten(structure: object, tensors: Sequence[object]) -> Any:
    """The value of a structure with these tensors in its places; the original objects are left as they are."""
    if isinstance(structure, Slot):
        return tensors[structure.number]
    if not isinstance(structure, Branch):
        return structure
    return with_parts(structure.original, {key: unflatten(part, tensors) for key, part in structure.parts.items()})


def with_parts(original: Any, parts: Mapping[Any, Any]) -> object:
    """A value like another one, made of other parts; its class is not asked to make it."""
    if type(original) in _CONTAINERS:
        return _pytree.tree_unflatten(list(parts.values()), _one_level(original))
    if isinstance(original, tuple) and hasattr(original, "_make"):
        return original._make(parts.values())
    if isinstance(original, (list, tuple)):
        return type(original)(list(parts.values()))
    rebuilt = copy.copy(original)
    if isinstance(original, Mapping):
        for key, part in parts.items():
            rebuilt[key] = part
        return rebuilt
    for name, part in parts.items():
        object.__setattr__(rebuilt, name, part)
    return rebuilt


def _one_level(container: object) -> Any:
    """The tree of a container with everything inside it as a leaf."""
    is_root = iter((True,))
    _, tree = _pytree.tree_flatten(container, is_leaf=lambda _: not next(is_root, False))
    return tree


class FlatModule(nn.Module):
    """A module that takes and gives plain tensors only."""

    def __init__(self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.module = module
        self.example, self.inputs = flatten((args, kwargs))
        self.training = module.training
        self._last_outputs = _Remembered()

    @property
    def outputs(self) -> Any:
        """How the module itself nested what it gave last; for `unflatten`."""
        return self._last_outputs.structure

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Call the module with these tensors in the places of the example's."""
        args, kwargs = unflatten(self.inputs, tensors)
        given, self._last_outputs.structure = flatten(self.module(*args, **kwargs))
        return tuple(given)


class _Remembered:
    """Survives torch.export, which puts the attributes of a module back to what they were."""

    structure: Any = None

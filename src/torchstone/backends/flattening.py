"""Nested arguments and outputs <-> plain tensors, for backends that know nothing else."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

_DEEPEST = 10
_PLAIN = (int, float, bool, str, bytes, complex, type(None), Enum, torch.dtype, torch.device, torch.layout, torch.Size)
_NEVER_LOOKED_INTO = (nn.Module, type, ModuleType, FunctionType, MethodType, BuiltinFunctionType, torch.Generator)


@dataclass(frozen=True)
class Slot:
    """The place of a tensor: its number among the flat ones."""

    number: int


@dataclass(frozen=True)
class Branch:
    """A container or object with tensors somewhere inside; the original is the pattern to build the next one from."""

    original: Any
    parts: dict[Any, Any]  # key, position or attribute -> Slot, Branch or the value itself


def parts_of(value: Any) -> dict[Any, Any] | None:
    """What a value is made of, by key, position or attribute; None when it is not looked into."""
    if isinstance(value, (*_PLAIN, Tensor, *_NEVER_LOOKED_INTO)):
        return None
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    if is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in fields(value)}
    attributes = getattr(value, "__dict__", None)
    return dict(attributes) if attributes else None


def flatten(value: Any) -> tuple[list[Tensor], Any]:
    """All tensors of a value, each once, and the structure to put others in their places."""
    tensors: list[Tensor] = []
    numbers: dict[int, int] = {}
    being_read: set[int] = set()

    def read(part: Any) -> Any:
        if isinstance(part, Tensor):
            if id(part) not in numbers:
                numbers[id(part)] = len(tensors)
                tensors.append(part)
            return Slot(numbers[id(part)])
        inside = None if id(part) in being_read or len(being_read) > _DEEPEST else parts_of(part)
        if not inside:
            return part
        being_read.add(id(part))
        seen = {key: read(inner) for key, inner in inside.items()}
        being_read.discard(id(part))
        changed = any(isinstance(inner, (Slot, Branch)) for inner in seen.values())
        return Branch(part, seen) if changed else part

    structure = read(value)
    return tensors, structure


def unflatten(structure: Any, tensors: Sequence[Any]) -> Any:
    """The value of a structure with these tensors in its places; the original objects are left as they are."""
    if isinstance(structure, Slot):
        return tensors[structure.number]
    if not isinstance(structure, Branch):
        return structure
    return _rebuilt(structure.original, {key: unflatten(part, tensors) for key, part in structure.parts.items()})


def _rebuilt(original: Any, parts: dict[Any, Any]) -> Any:
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


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in a value that is not looked into, with its path: "logits", "past_key_values.layers.0.keys"."""
    yield from _leaves(value, path, ())


def _leaves(value: Any, path: str, around: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    inside = None if id(value) in around or len(around) > _DEEPEST else parts_of(value)
    if inside is None:
        yield path, value
        return
    for key, part in inside.items():
        yield from _leaves(part, f"{path}.{key}" if path else str(key), (*around, id(value)))


class FlatModule(nn.Module):
    """A module that takes and gives plain tensors only."""

    def __init__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
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

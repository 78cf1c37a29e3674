"""Inputs and outputs of any shape -> named tensors and a structure that says where they belong.

A name is the way to the tensor: `outputs/logits`, `outputs/past_key_values/layers/0/keys`, `inputs/input_ids`.
"""

import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchstone.record.golden import Group, NotKept, Part, Saved

_DEEPEST = 12
_INT64 = 1 << 63
_CLOSED = (nn.Module, type, types.FunctionType, types.MethodType, types.BuiltinFunctionType, torch.Generator, Enum,
           torch.dtype, torch.device, torch.layout, torch.memory_format)  # fmt: skip


class _Inside(NamedTuple):
    kind: str
    class_name: str
    parts: list[tuple[str, Any]]


def structure_of(value: Any, name: str) -> Part:
    """Where each tensor of a value belongs; tensors by name."""
    return _structure(value, name, ())


def tensors_of(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """Every tensor inside a value with its name, in order; an empty name is left out of the names."""
    return _tensors(value, name, ())


def fill_in(value: Any, name: str, tensors: Mapping[str, Tensor]) -> list[str]:
    """Give the tensors inside a value these values, in place; tells the names that do not fit."""
    misfits: list[str] = []
    own = dict(tensors_of(value, name))
    with torch.no_grad():
        for key in dict.fromkeys((*own, *tensors)):
            here, wanted = own.get(key), tensors.get(key)
            if here is None or wanted is None or here.shape != wanted.shape or here.dtype != wanted.dtype:
                misfits.append(key)
            elif not torch.equal(here, wanted):
                here.copy_(wanted)
    return misfits


def _structure(value: Any, name: str, above: tuple[int, ...]) -> Part:
    if isinstance(value, Tensor):
        return Saved(name=name)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and not isinstance(value, Enum) and -_INT64 <= value < _INT64:
        return int(value)
    if isinstance(value, float) and isfinite(value):
        return float(value)
    inside = _inside(value, above)
    if inside is None:
        return NotKept(class_name=type(value).__qualname__, text=_short(value))
    below = (*above, id(value))
    parts = tuple((key, _structure(part, f"{name}/{key}", below)) for key, part in inside.parts)
    return Group(kind=inside.kind, class_name=inside.class_name, parts=parts)


def _tensors(value: Any, name: str, above: tuple[int, ...]) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
        return
    inside = _inside(value, above)
    for key, part in inside.parts if inside is not None else ():
        yield from _tensors(part, f"{name}/{key}" if name else key, (*above, id(value)))


def _inside(value: Any, above: tuple[int, ...]) -> _Inside | None:
    """The parts of a value that has any; a value inside itself is not looked into again."""
    if id(value) in above or len(above) > _DEEPEST or isinstance(value, _CLOSED):
        return None
    name = type(value).__qualname__
    if isinstance(value, Mapping):
        kept = "" if type(value) is dict else name
        return _Inside("dict", kept, [(str(key), part) for key, part in value.items()])
    if isinstance(value, list | tuple):
        keys = getattr(value, "_fields", None) or map(str, range(len(value)))
        kept = "" if type(value) in (list, tuple) else name
        return _Inside("list" if isinstance(value, list) else "tuple", kept, list(zip(keys, value, strict=True)))
    if is_dataclass(value):
        return _Inside("object", name, [(field.name, getattr(value, field.name)) for field in fields(value)])
    return _Inside("object", name, list(vars(value).items())) if hasattr(value, "__dict__") else None


def plain_part(part: Part, tensors: Mapping[str, Tensor]) -> Any:
    """A structure in dictionaries, lists and tuples alone, with its tensors; None for one that was not kept."""
    match part:
        case Saved(name=name):
            return tensors.get(name)
        case Group(kind="list" | "tuple" as kind, parts=parts):
            items = [plain_part(inner, tensors) for _, inner in parts]
            return items if kind == "list" else tuple(items)
        case Group(parts=parts):
            return {key: plain_part(inner, tensors) for key, inner in parts}
        case NotKept(class_name=class_name, text=text):
            return f"<{class_name}> {text}".rstrip()
        case _:
            return part


def _short(value: Any) -> str:
    """Words for a scalar; the text of an object may hold an address and differ from run to run."""
    if isinstance(value, int | float | complex | Enum | torch.dtype | torch.device):
        return str(value)
    return getattr(value, "__qualname__", "")

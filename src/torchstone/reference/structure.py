"""Nested inputs and outputs -> named tensors, and a structure that says where they belong.

A name is the path to the tensor: `outputs/logits`, `outputs/past_key_values/layers/0/keys`, `inputs/input_ids`.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from math import isfinite

import torch
from torch import Tensor

from torchstone.numerics.pytree import named_tensors, parts_within
from torchstone.record.reference import Group, NotKept, Part, Saved

_INT64 = 1 << 63


def structure_of(value: object, name: str) -> Part:
    """Where each tensor of a value belongs; tensors by name."""
    return _structure(value, name, ())


def tensors_of(value: object, name: str) -> Iterator[tuple[str, Tensor]]:
    """Every tensor inside a value with its name, in order; an empty name adds no prefix."""
    return named_tensors(value, name, separator="/")


def fill_in(value: object, name: str, tensors: Mapping[str, Tensor]) -> list[str]:
    """Overwrite the tensors inside a value in place; returns the names whose shape, dtype or presence differs."""
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


def _structure(value: object, name: str, above: tuple[int, ...]) -> Part:
    if isinstance(value, Tensor):
        return Saved(name=name)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and not isinstance(value, Enum) and -_INT64 <= value < _INT64:
        return int(value)
    if isinstance(value, float) and isfinite(value):
        return float(value)
    parts = parts_within(value, above)
    if parts is None:
        return NotKept(class_name=type(value).__qualname__, text=_short(value))
    below = (*above, id(value))
    children = tuple((str(key), _structure(part, f"{name}/{key}", below)) for key, part in parts.items())
    class_name = "" if type(value) in (dict, list, tuple) else type(value).__qualname__
    return Group(kind=_kind(value), class_name=class_name, parts=children)


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "dict"
    return "tuple" if isinstance(value, tuple) else "list" if isinstance(value, list | deque) else "object"


def plain_part(part: Part, tensors: Mapping[str, Tensor]) -> object:
    """A structure as plain dicts, lists and tuples with its tensors; None for a tensor that was not saved."""
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


def _short(value: object) -> str:
    """The text of a scalar; that of any other object may contain an address and differ from run to run."""
    if isinstance(value, int | float | complex | Enum | torch.dtype | torch.device):
        return str(value)
    return getattr(value, "__qualname__", "")

"""Names and roles of ops: read from error messages, from a module's graph, and from op schemas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any

import torch
from torch import nn
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

# --- Names: those in a message, and those that a module calls, with their overloads ---


_OP = re.compile(r"\b(?:aten|prims|higher_order|torchvision|_c10d_functional)(?:\.|::)\w+(?:\.\w+)?")
_OVERLOAD = re.compile(r"<OpOverload\(op='([\w.]+)', overload='(\w+)'\)>")


def ops_named_in(text: str) -> tuple[str, ...]:
    """The ops that a message names, as aten.mm.default."""
    overloads = [f"{op}.{overload}" for op, overload in _OVERLOAD.findall(text)]
    rest = _OVERLOAD.sub("", text).replace("torch.ops.", "")
    return tuple(dict.fromkeys([*overloads, *(found.replace("::", ".") for found in _OP.findall(rest))]))


def with_overloads(names: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Names such as aten.sort, each as the overloads of it that are known; as it is where none is."""
    known = tuple(dict.fromkeys(known))
    found: dict[str, None] = {}
    for name in names:
        overloads = [one for one in known if one == name or one.rpartition(".")[0] == name]
        found |= dict.fromkeys(overloads or [name])
    return tuple(found)


def ops_called(module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[str, ...]:
    """The ops that a call of a module comes down to, each once, found by running it."""
    with torch.no_grad(), _Recording() as recording:
        module(*args, **kwargs)
    return tuple(recording.names)


class _Recording(TorchDispatchMode):
    """Notes every op that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, None] = {}

    def __torch_dispatch__(self, op: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
        self.names[str(op)] = None
        return op(*args, **(kwargs or {}))


# --- Roles, read from schemas and tags ---


_MAKES_A_TENSOR = {"dtype", "layout", "device", "pin_memory"}  # torch's tensor options, as every factory takes them
_COPIES = "non_blocking"  # copies take the options, too, and say how to copy


class Role(str, Enum):  # noqa: UP042 - the environment of a backend may have Python 3.10
    """What an op does with values."""

    __str__ = str.__str__

    COMPUTE = "compute"
    VIEW = "view"  # looks at the memory of an argument
    FACTORY = "factory"  # makes a tensor without reading any values
    RANDOM = "random"  # draws from the random generator
    UNKNOWN = "unknown"  # a higher-order op has no schema


@cache
def role_of(op: OpOverload | HigherOrderOperator) -> Role:
    """The role of an op."""
    if isinstance(op, HigherOrderOperator):
        return Role.UNKNOWN
    schema = op._schema
    if torch.Tag.nondeterministic_seeded in op.tags:
        return Role.RANDOM
    if schema.returns and all(back.alias_info and not back.alias_info.is_write for back in schema.returns):
        return Role.VIEW
    names = {argument.name for argument in schema.arguments}
    takes_tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
    if not takes_tensors or (names >= _MAKES_A_TENSOR and _COPIES not in names):
        return Role.FACTORY
    return Role.COMPUTE

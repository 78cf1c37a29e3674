"""The names of ops: those that a message tells, and those that a module calls, with their overloads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

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


def ops_called(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """The ops that a call of a module comes down to, each once, found by running it."""
    with torch.no_grad(), _Recording() as recording:
        module(*args, **kwargs)
    return tuple(recording.names)


class _Recording(TorchDispatchMode):
    """Notes every op that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, None] = {}

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[str(op)] = None
        return op(*args, **(kwargs or {}))

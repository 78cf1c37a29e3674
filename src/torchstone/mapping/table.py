"""The table of mappings: the name of an ATen op -> a small function that computes it with ttnn's ops.

A rule is called as `rule(tt, **arguments)`, with the arguments of the ATen op under the names of its schema. `tt` has
ttnn's ops under their own names (`tt.add`, `tt.transformer.scaled_dot_product_attention`); tensors are handles with a
`shape` and a `dtype` (that of torch). The same rule runs on a device, on torch (where its result is compared with the
ATen op), and as a recorder of code. Needs the standard library alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

# What a rule handles is decided by who calls it: ttnn, torch in its place, or a recorder of code. None of them shares a
# base class, so that the types are names for the reader.
Library: TypeAlias = Any  # has ttnn's ops under their own names
Tensor: TypeAlias = Any  # a handle of that library with a `shape` and a `dtype`
Number: TypeAlias = Any  # a Python number, or a tensor that stands for one

Rule = Callable[..., Tensor]
GROUP = "torchstone.mappings"  # the entry-point group of packages that bring rules


class Kind(str, Enum):  # noqa: UP042 - StrEnum is newer than the oldest Python of an environment
    """What an op becomes."""

    DIRECT = "one to one"
    COMPOSED = "composed"
    VIEW = "view"
    CREATE = "create"
    HOST = "on the host"  # reads a value: a pipeline on the device stops here
    NONE = "none"


@dataclass(frozen=True)
class Mapping:
    """One row of the table."""

    op: str  # "aten.addmm", or one overload: "aten.addmm.default"
    rule: Rule | None
    kind: Kind | None = None  # None: one to one or composed, as many calls as it makes
    note: str = ""


class NotMappedError(Exception):
    """A rule does not cover this call of its op."""


_TABLE: dict[str, Mapping] = {}


def maps(*ops: str, kind: Kind | None = None, note: str = "") -> Callable[[Rule], Rule]:
    """Register a rule for ops; a later registration, such as a user's, replaces an earlier one."""

    def register(rule: Rule) -> Rule:
        for op in ops:
            _TABLE[op] = Mapping(op, rule, kind, note)
        return rule

    return register


def without_counterpart(op: str, why: str) -> None:
    """Say that ttnn has nothing for an op."""
    _TABLE[op] = Mapping(op, None, Kind.NONE, why)


def find_mapping(op: str) -> Mapping | None:
    """The row of an op overload: its own, that of the op, or that of the op that does not write in place."""
    packet = ".".join(op.split(".")[:2])
    for name in (op, packet, packet.removesuffix("_")):
        if name in _TABLE:
            return _TABLE[name]
    return None


def known_mappings() -> dict[str, Mapping]:
    """All rows that were registered so far."""
    return dict(_TABLE)

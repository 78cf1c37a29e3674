"""The arguments of a program as they stand in JSON: what kind they are, and which tensors they name. Without torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class ProgramError(Exception):
    """A program says something that cannot be understood."""


def only_entry(argument: Mapping[str, Any]) -> tuple[str, Any]:
    """The kind of a value and what it holds."""
    if len(argument) != 1:
        msg = f"the program has an argument that is no value: {dict(argument)!r}"
        raise ProgramError(msg)
    return next(iter(argument.items()))


def tensor_names_in(argument: Any) -> Iterator[str]:
    """The names of the tensors in an argument, in order."""
    if isinstance(argument, list):
        for item in argument:
            yield from tensor_names_in(item)
    elif isinstance(argument, Mapping):
        kind, content = only_entry(argument)
        if kind == "tensor":
            yield content
        elif kind == "dict":
            for _, item in content:
                yield from tensor_names_in(item)
        elif kind != "atom":
            for item in content:
                yield from tensor_names_in(item)

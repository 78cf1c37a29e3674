"""The arguments of a program: JSON -> Python and torch values, and -> Python source."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchstone.backends.program_arguments import ProgramError, only_entry

_ENUM_HOMES = ("torch", "torch.distributed", "torch.nn.attention", "torch._C", "torch.nn.functional")


def read_value(argument: Any, names: Mapping[str, Any]) -> Any:
    """The value of an argument, tensors taken from `names`."""
    if isinstance(argument, list):
        return [read_value(item, names) for item in argument]
    if not isinstance(argument, Mapping):
        return argument
    kind, content = only_entry(argument)
    match kind:
        case "tensor":
            if content not in names:
                msg = f"the program uses {content} before any step gives it"
                raise ProgramError(msg)
            return names[content]
        case "atom":
            return read_atom(content["kind"], content["text"])
        case "list" | "tuple" | "set":
            items = [read_value(item, names) for item in content]
            return {"list": list, "tuple": tuple, "set": set}[kind](items)
        case "dict":
            return {read_value(key, names): read_value(item, names) for key, item in content}
        case _:
            msg = f"the program has an argument of unknown kind {kind!r}"
            raise ProgramError(msg)


def value_source(argument: Any) -> str:
    """An argument as Python source, tensors by their names."""
    if isinstance(argument, list):
        return f"[{', '.join(map(value_source, argument))}]"
    if not isinstance(argument, Mapping):
        return repr(argument)
    kind, content = only_entry(argument)
    match kind:
        case "tensor":
            return identifier(content)
        case "atom":
            return atom_source(content["kind"], content["text"])
        case "list":
            return f"[{', '.join(map(value_source, content))}]"
        case "tuple":
            inner = ", ".join(map(value_source, content))
            return f"({inner},)" if len(content) == 1 else f"({inner})"
        case "set":
            return f"{{{', '.join(map(value_source, content))}}}" if content else "set()"
        case "dict":
            return "{" + ", ".join(f"{value_source(key)}: {value_source(item)}" for key, item in content) + "}"
        case _:
            msg = f"the program has an argument of unknown kind {kind!r}"
            raise ProgramError(msg)


def identifier(name: str) -> str:
    """A name that may stand in Python source."""
    if not name.isidentifier() or keyword.iskeyword(name):
        msg = f"the program has a name that Python does not take: {name!r}"
        raise ProgramError(msg)
    return name


def read_atom(kind: str, text: str) -> Any:
    """A scalar that JSON has no word for, from the text that a trace keeps of it."""
    reader = _ATOMS.get(kind)
    if reader is None:
        msg = f"the program has a scalar of unknown kind {kind!r}: {text}"
        raise ProgramError(msg)
    try:
        return reader(text)
    except (ValueError, AttributeError, RuntimeError) as error:
        msg = f"the program's {kind} {text!r} cannot be read: {error}"
        raise ProgramError(msg) from error


def atom_source(kind: str, text: str) -> str:
    """The same scalar as Python source."""
    value = read_atom(kind, text)
    match kind:
        case "device":
            return f"torch.device({text!r})"
        case "float":
            return f"float({text!r})"
        case "complex":
            return f"complex({text!r})"
        case "enum":
            home = next(home for home in _ENUM_HOMES if _enum_in(home, text) is not None)
            return f"{home}.{text}"
        case "ellipsis":
            return "..."
        case _:
            return repr(value)  # torch.float32, torch.channels_last, slice(0, None, 2), a large int


def _torch_constant(text: str) -> Any:
    return getattr(torch, text.removeprefix("torch."))


def _slice(text: str) -> slice:
    return slice(*(None if part == "None" else int(part) for part in text.split(":")))


def _enum(text: str) -> Any:
    for home in _ENUM_HOMES:
        found = _enum_in(home, text)
        if found is not None:
            return found
    msg = "torch has no such enum"
    raise ValueError(msg)


def _enum_in(home: str, text: str) -> Any:
    found: Any = torch
    for part in [*home.split(".")[1:], *text.split(".")]:
        found = getattr(found, part, None)
    return found


_ATOMS: dict[str, Callable[[str], Any]] = {
    "dtype": _torch_constant,
    "layout": _torch_constant,
    "memory_format": _torch_constant,
    "device": torch.device,
    "float": float,
    "complex": complex,
    "int": int,
    "symbol": int,  # a size that was the same number in every run; any other symbol cannot be read
    "slice": _slice,
    "ellipsis": lambda _: ...,
    "enum": _enum,
}

"""The signatures of ttnn's ops, read from their docstrings: the arguments with their order and types."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

_LINE = "__call__("
_DEEPEST = 3  # ttnn.operations.x.y
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True)
class Parameter:
    """One argument of an op."""

    name: str
    type: str  # as the docstring says it, without the names of modules; "" where it says nothing
    required: bool
    by_name_only: bool

    @property
    def takes_none(self) -> bool:
        """Whether None is a value of it."""
        return not self.type or "None" in self.type.split(" | ")


@dataclass(frozen=True)
class Signature:
    """One way to call an op."""

    parameters: tuple[Parameter, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of all arguments."""
        return frozenset(one.name for one in self.parameters)


class UnknownOpError(Exception):
    """The installed ttnn has no such op."""


def find_op(name: str) -> Any:
    """The function of a dotted name such as ttnn.transformer.concatenate_heads.

    Names come from traces, which are files of others, and what they name is called. So it must be an op, which knows
    its own name: `ttnn.os.system` leads to a function, too.
    """
    import ttnn

    found: object = ttnn
    for part in name.split(".")[1:]:
        inside = inspect.ismodule(found) and found.__name__.partition(".")[0] == "ttnn"
        found = getattr(found, part, None) if inside and not part.startswith("_") else None
        if found is None:
            msg = f"ttnn has no op {name}"
            raise UnknownOpError(msg)
    if not callable(found) or not (own_name(found) or _is_written_in_python(found)):
        msg = f"{name} is not an op of ttnn"
        raise UnknownOpError(msg)
    return found


def _is_written_in_python(found: object) -> bool:
    """Whether a function is one of ttnn's own ops that calls others, such as global_avg_pool2d."""
    return inspect.isfunction(found) and found.__module__.startswith("ttnn.operations.")


def own_name(found: object) -> str:
    """The name that an op of ttnn knows itself by; "" for everything else."""
    own = getattr(found, "python_fully_qualified_name", None)
    return own if isinstance(own, str) and own.startswith("ttnn.") else ""


@cache
def signatures_of(name: str) -> tuple[Signature, ...]:
    """All ways to call an op; none where its docstring does not say."""
    op = find_op(name)
    function = getattr(op, "function", op)
    text = getattr(getattr(type(function), "__call__", None), "__doc__", None) or ""  # noqa: B004 - not a test: its text
    found = [Signature(tuple(parameters_of_line(line))) for line in map(str.strip, text.splitlines()) if _LINE in line]
    return tuple(found) or _of_python(function)


def all_signatures(_payload: Mapping[str, object]) -> dict[str, list[str]]:
    """Every op of the installed ttnn with the ways to call it, as text."""
    import ttnn

    return {name: sorted(map(_line, signatures_of(name))) for name in sorted(set(_op_names(ttnn, "ttnn", depth=0)))}


def _op_names(module: Any, path: str, depth: int) -> Iterator[str]:
    """The dotted names of ops, which are objects that know their own name."""
    for name, found in list(vars(module).items()):
        if name.startswith("_"):
            continue
        if own_name(found) == f"{path}.{name}":
            yield f"{path}.{name}"
        elif inspect.ismodule(found) and found.__name__.startswith("ttnn") and depth < _DEEPEST:
            yield from _op_names(found, f"{path}.{name}", depth + 1)


def _line(signature: Signature) -> str:
    """A signature as Python writes it: a star before arguments that go by name alone, dots for a default."""
    parts, named = [], False
    for one in signature.parameters:
        parts += ["*"] if one.by_name_only and not named else []
        named = named or one.by_name_only
        parts.append(one.name + (f": {one.type}" if one.type else "") + ("" if one.required else " = ..."))
    return f"({', '.join(parts)})"


def _of_python(function: Any) -> tuple[Signature, ...]:
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a C++ function without a signature
        return ()
    kinds = inspect.Parameter
    known = [one for one in given if one.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD) and one.name != "self"]
    parameters = [
        Parameter(
            one.name,
            "" if one.annotation is kinds.empty else _plain(str(one.annotation)),
            one.default is kinds.empty,
            one.kind is kinds.KEYWORD_ONLY,
        )
        for one in known
    ]
    return (Signature(tuple(parameters)),)


def parameters_of_line(line: str, opening: str = _LINE) -> Iterator[Parameter]:
    """The arguments of a line such as `__call__(self, a: ttnn.Tensor, *, dtype: X | None = None) -> ttnn.Tensor`."""
    start = line.index(opening) + len(opening)
    by_name_only = False
    for part in _parts(line[start : _closing(line, start)]):
        if part == "*":
            by_name_only = True
            continue
        name, _, rest = part.partition(":")
        kind, equals, _ = rest.partition(" = ")
        if name.strip() not in ("self", "/"):
            yield Parameter(name.strip(), _plain(kind.strip()), not equals, by_name_only)


def _closing(line: str, start: int) -> int:
    depth = 1
    for place in range(start, len(line)):
        depth += (line[place] in _OPENING) - (line[place] in _CLOSING)
        if depth == 0:
            return place
    return len(line)


def _parts(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    if text[start:].strip():
        yield text[start:].strip()


def _plain(text: str) -> str:
    """A type without the modules in front of its names."""
    words, word = [], ""
    for letter in [*text, " "]:
        if letter.isalnum() or letter in "_.:":
            word += letter
            continue
        words += [word.replace("::", ".").rpartition(".")[2], letter]
        word = ""
    return "".join(words).strip()

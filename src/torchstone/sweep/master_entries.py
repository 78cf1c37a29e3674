"""Traced configurations of an op, from a master JSON of any era.

Sweep modules read them where torchstone itself need not be installed: the standard library is all that is used.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_GRID = re.compile(r'"grid":\{((?:\[[^\]]*\](?:, )?)+)\}')
_RANGE = re.compile(r"\} - \{")
_POSITION = re.compile(r"arg(\d+)")
UNREADABLE = "__UNREADABLE__"  # a dictionary with this key holds the text of an argument that could not be read


@dataclass
class Entry:
    """One traced configuration."""

    op: str
    arguments: dict[str, Any]
    executions: list[dict[str, Any]] = field(default_factory=list)
    config_hash: str = ""
    is_list: bool = False  # the layout of 2025: a list of arguments
    is_aten: bool = False


def spellings(op: str) -> list[str]:
    """The names that an op may stand under."""
    short = op.removeprefix("ttnn.").removeprefix("ttnn::").replace("::", ".")
    dotted = [op, short, f"ttnn.{short}", f"ttnn.experimental.{short}", f"ttnn.transformer.{short}"]
    aten = [f"aten.{short}", f"aten.{short}.default", f"aten.{short}.Tensor"]
    return list(dict.fromkeys([*dotted, *(name.replace(".", "::") for name in dotted), *aten]))


def read_master(path: Path, op: str) -> tuple[list[Entry], list[str]]:
    """The configurations of an op under any of its spellings, and all ops that the master file has."""
    try:
        document = json.loads(path.read_bytes())
        operations = document["operations"]
        names = list(operations)
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{path} is not a master file: {error}"
        raise ValueError(msg) from error
    found = next((name for name in spellings(op) if name in operations), None)
    if found is None:
        return [], names
    listed = operations[found]
    configurations = listed.get("configurations", []) if isinstance(listed, dict) else listed
    return [_entry(found, one) for one in configurations], names


def _entry(op: str, entry: Any) -> Entry:
    entry = entry if isinstance(entry, dict) else {"arguments": entry}
    given = entry["arguments"]
    if isinstance(given, dict):
        return Entry(op, dict(given), list(entry.get("executions") or []), str(entry.get("config_hash") or ""))
    arguments: dict[str, Any] = {}
    for position, element in enumerate(given):
        name, value = _element(position, element)
        arguments[name] = value
    sources = entry.get("source")
    sources = sources if isinstance(sources, list) else [sources or "unknown"]
    return Entry(op, arguments, [{"source": source} for source in sources], is_list=True)


def _element(position: int, element: Any) -> tuple[str, Any]:
    if not isinstance(element, dict) or len(element) != 1:
        return f"arg{position}", element
    ((name, value),) = element.items()
    if name != "UnparsedElement":
        return name, _literal(value)
    text = str(value.get("element_info", ""))
    repaired = _RANGE.sub("}, {", _GRID.sub(r'"grid":[\1]', text))
    try:
        ((name, value),) = json.loads(repaired).items()
    except (ValueError, AttributeError):
        return f"arg{position}", {UNREADABLE: text}
    return name, value


def _literal(value: object) -> Any:
    """Scalars of 2025 are texts: "3", "[0, 2, 3, 1]", "nullopt"."""
    if not isinstance(value, str):
        return value
    if value in ("nullopt", "std::nullopt"):
        return None
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return {UNREADABLE: value} if "unsupported type" in value else value


def position_of(name: str) -> int | None:
    """The position that a name such as arg3 stands for."""
    found = _POSITION.fullmatch(name)
    return int(found[1]) if found else None

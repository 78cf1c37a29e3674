"""Traced configurations of an op, from a master JSON of any era or from a database of torchstone.

Sweep modules read them where torchstone itself need not be installed: the standard library is all that is used.
"""

from __future__ import annotations

import ast
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
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


def read_entries(path: Path, op: str) -> tuple[list[Entry], list[str]]:
    """The configurations of an op under any of its spellings, and all ops that the file has."""
    if not path.is_file():
        msg = f"there is no master file {path}"
        raise FileNotFoundError(msg)
    if path.suffix == ".json":
        return _from_json(path, op)
    return _from_database(path, op)


def spellings(op: str) -> list[str]:
    """The names that an op may stand under."""
    short = op.removeprefix("ttnn.").removeprefix("ttnn::").replace("::", ".")
    dotted = [op, short, f"ttnn.{short}", f"ttnn.experimental.{short}", f"ttnn.transformer.{short}"]
    aten = [f"aten.{short}", f"aten.{short}.default", f"aten.{short}.Tensor"]
    return list(dict.fromkeys([*dotted, *(name.replace(".", "::") for name in dotted), *aten]))


def _from_json(path: Path, op: str) -> tuple[list[Entry], list[str]]:
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


def _entry(op: str, told: Any) -> Entry:
    told = told if isinstance(told, dict) else {"arguments": told}
    given = told["arguments"]
    if isinstance(given, dict):
        return Entry(op, dict(given), list(told.get("executions") or []), str(told.get("config_hash") or ""))
    arguments: dict[str, Any] = {}
    for position, element in enumerate(given):
        name, value = _element(position, element)
        arguments[name] = value
    sources = told.get("source")
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


def _literal(value: Any) -> Any:
    """Scalars of 2025 are texts: "3", "[0, 2, 3, 1]", "nullopt"."""
    if not isinstance(value, str):
        return value
    if value in ("nullopt", "std::nullopt"):
        return None
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return {UNREADABLE: value} if "unsupported type" in value else value


def _from_database(path: Path, op: str) -> tuple[list[Entry], list[str]]:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            names = [name for (name,) in connection.execute("SELECT DISTINCT op FROM configuration ORDER BY op")]
            found = next((name for name in spellings(op) if name in names), None)
            if found is None:
                return [], names
            query = "SELECT id, key, body, knowledge FROM configuration WHERE op = ? ORDER BY key"
            rows = list(connection.execute(query, (found,)))
            return [_database_entry(connection, found, row) for row in rows], names
    except sqlite3.DatabaseError as error:
        msg = f"{path} is not a database of torchstone: {error}"
        raise ValueError(msg) from error


def _database_entry(connection: sqlite3.Connection, op: str, row: tuple[int, str, str, str | None]) -> Entry:
    number, key, body, knowledge = row
    told = json.loads(body)
    foreign = (json.loads(knowledge) if knowledge else {}).get("foreign") or []
    arguments = {one["name"]: _plain(one.get("value")) for one in told.get("arguments", ())}
    is_list = any("v0" in one["format"] or "v1" in one["format"] for one in foreign)
    return Entry(
        op,
        arguments,
        list(_executions(connection, number)),
        next((one["hash"] for one in foreign if one.get("hash")), key),
        is_list=is_list,
        is_aten=not op.startswith("ttnn"),
    )


def _executions(connection: sqlite3.Connection, number: int) -> Iterator[dict[str, Any]]:
    query = (
        "SELECT DISTINCT origin.source, place.details FROM occurrence JOIN origin ON origin.id = occurrence.origin "
        "JOIN place ON place.id = occurrence.place WHERE occurrence.configuration = ? ORDER BY 1, 2"
    )
    for source, details in connection.execute(query, (number,)):
        yield {"source": source, **(_plain(json.loads(details)) if details else {})}


def _plain(value: Any) -> Any:
    """A record value in JSON -> the JSON value that a master file would hold."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    match value.get("type"):
        case "entries":
            return {str(name): _plain(part) for name, part in value.get("entries", ())}
        case "items":
            parts = [_plain(part) for part in value.get("items", ())]
            return tuple(parts) if value.get("kind") == "tuple" else parts
        case "atom":
            return _atom(value)
        case "fields":
            return {"type": value["class_name"], **{name: _plain(part) for name, part in value.get("fields", ())}}
        case "opaque":
            return {UNREADABLE: value.get("text") or value["class_name"]}
        case _:
            return dict(value)


def _atom(value: Mapping[str, Any]) -> Any:
    readers: dict[str, Any] = {"float": float, "int": int, "complex": complex}
    reader = readers.get(value["kind"])
    return reader(value["text"]) if reader else {"type": value["kind"], "repr": value["text"]}


def position_of(name: str) -> int | None:
    """The position that a name such as arg3 stands for."""
    found = _POSITION.fullmatch(name)
    return int(found[1]) if found else None

"""Traced configurations of an op, from a master JSON of any era or from a database of torchstone.

Both ways end in the same `Entry`: the same op gives the same parameters from a file and from the database that the file
was imported into. Sweep modules read them where torchstone itself need not be installed: the standard library is all
that is used, and psycopg for PostgreSQL.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from torchstone.backends.ttnn_trace_text import UNPARSED, UNREADABLE, element_of, executions_of, literal, repair
from torchstone.foreign import computed_tables

_POSITION = re.compile(r"arg(\d{1,9})")


@dataclass
class Entry:
    """One traced configuration."""

    op: str
    arguments: dict[str, Any]  # positional ones (arg0, arg1, ...) first, then the others by name
    executions: list[dict[str, Any]] = field(default_factory=list)
    config_hash: str | None = None
    is_list: bool = False  # the layout of 2025: a list of arguments
    is_aten: bool = False


def made_entry(
    op: str,
    arguments: Mapping[str, object],
    executions: Iterable[dict[str, object]],
    config_hash: str | None,
    kind: str,
) -> Entry:
    """An entry in the one order that files and databases share; `kind` is list, dict or aten."""
    given = {name: literal(value) for name, value in arguments.items()} if kind == "list" else dict(arguments)
    if kind != "aten":  # the arguments of a PyTorch op are in the order of its schema
        given = {name: given[name] for name in sorted(given, key=_argument_order)}
    placed = sorted(executions, key=lambda one: (str(one.get("source")), json.dumps(one, sort_keys=True, default=str)))
    return Entry(op, given, placed, config_hash, is_list=kind == "list", is_aten=kind == "aten")


def _argument_order(name: str) -> tuple[bool, int, str]:
    position = position_of(name)
    return position is None, position or 0, name


def position_of(name: str) -> int | None:
    """The position that a name such as arg3 stands for."""
    found = _POSITION.fullmatch(name)
    return int(found[1]) if found else None


def spellings(op: str) -> list[str]:
    """The names that an op may stand under."""
    short = op.removeprefix("ttnn.").removeprefix("ttnn::").replace("::", ".")
    dotted = [op, short, f"ttnn.{short}", f"ttnn.experimental.{short}", f"ttnn.transformer.{short}"]
    aten = [f"aten.{short}", f"aten.{short}.default", f"aten.{short}.Tensor"]
    return list(dict.fromkeys([*dotted, *(name.replace(".", "::") for name in dotted), *aten]))


# --- Master files ---


def read_master(path: Path, op: str) -> tuple[list[Entry], list[str]]:
    """The configurations of an op under any of its spellings, and all ops that the master file has."""
    try:
        operations = _parsed(path, path.stat().st_mtime_ns)["operations"]
        names = list(operations)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        msg = f"{path} is not a master file: {error}"
        raise ValueError(msg) from error
    found = next((name for name in spellings(op) if name in operations), None)
    if found is None:
        return [], names
    listed = operations[found]
    configurations = listed.get("configurations", []) if isinstance(listed, dict) else listed
    if not isinstance(configurations, list):
        msg = f"{path} is not a master file: the configurations of {found} are not a list"
        raise ValueError(msg)  # noqa: TRY004 - the content of the file is wrong, not an argument
    source = str(path.resolve())
    return [one for given in configurations if (one := _file_entry(found, given, source)) is not None], names


@lru_cache(maxsize=1)
def _parsed(path: Path, _changed_ns: int) -> Any:
    """The document of a file; many modules of one process ask the same file for their ops."""
    return json.loads(path.read_bytes())


def _file_entry(op: str, given: object, source: str) -> Entry | None:
    """An entry of a file; None where it has no arguments, which the importer reports."""
    entry = given if isinstance(given, dict) else {"arguments": given}
    executions = executions_of(entry, source=source)
    arguments = entry.get("arguments")
    if isinstance(arguments, dict):
        hashed = entry.get("config_hash")
        return made_entry(op, arguments, executions, hashed if isinstance(hashed, str) else None, "dict")
    if not isinstance(arguments, list):
        return None
    named: dict[str, object] = {}
    for position, element in enumerate(arguments):
        name, value = element_of(element, position)
        if name == UNPARSED:
            fixed = repair(value, position=position)
            name, value = fixed.name, fixed.value if fixed.is_read else {UNREADABLE: fixed.text}
        named[name] = value
    return made_entry(op, named, executions, None, "list")


# --- Databases: a SQLite file, or PostgreSQL by URL ---

Ask = Callable[..., list[tuple[Any, ...]]]

_DRIVER = re.compile(r"^postgres(ql)?(\+\w+)?://")
_PASSWORD = re.compile(r"://([^:@/]*):[^@/]*@")
_OPS = (  # from one op to the next in the index, not over all configurations
    "WITH RECURSIVE ops(op) AS (SELECT min(op) FROM configuration UNION ALL "
    "SELECT (SELECT min(op) FROM configuration WHERE op > ops.op) FROM ops WHERE ops.op IS NOT NULL) "
    "SELECT op FROM ops WHERE op IS NOT NULL"
)
_CONFIGURATIONS = "SELECT id, key, body, knowledge FROM configuration WHERE op = {} ORDER BY id"  # as they were added
_EXECUTIONS = (
    "SELECT DISTINCT occurrence.configuration, origin.source, place.details FROM configuration "
    "JOIN occurrence ON occurrence.configuration = configuration.id JOIN origin ON origin.id = occurrence.origin "
    "JOIN place ON place.id = occurrence.place WHERE configuration.op = {}"
)
_TABLES = ("configuration", "occurrence", "origin", "place")
_LIST_FORMATS = ("ttnn_master_v0", "ttnn_master_v1")  # the beginning of their names


def is_server(address: str) -> bool:
    """Whether an address is that of a PostgreSQL database."""
    return _DRIVER.match(address) is not None


def read_database(address: str, op: str) -> tuple[list[Entry], list[str]]:
    """The configurations of an op under any of its spellings, and all ops that the database has."""
    read = _read_server if is_server(address) else _read_file
    try:
        return read(address, op)
    except (LookupError, TypeError, AttributeError, RecursionError) as error:  # of JSON that a record never has
        msg = f"{without_password(address)} has a configuration of {op} that cannot be read ({error!r:.80})"
        raise ValueError(msg) from error


def without_password(address: str) -> str:
    """An address as messages name it."""
    return _PASSWORD.sub(r"://\1@", address)


def _read_file(path: str, op: str) -> tuple[list[Entry], list[str]]:
    try:
        with closing(sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)) as connection:
            if connection.execute(computed_tables(_TABLES)).fetchone():
                msg = f"{path} is not a database of torchstone: it computes what a table has, as a view does"
                raise ValueError(msg)
            return _read(lambda query, *values: connection.execute(query.format("?"), values).fetchall(), op)
    except sqlite3.DatabaseError as error:
        msg = f"{path} is not a database of torchstone: {error}"
        raise ValueError(msg) from error
    except MemoryError:  # SQLite's answer to some damage, and to a file too large for this machine
        msg = f"{path} cannot be read: it is damaged, or needs more memory than there is"
        raise ValueError(msg) from None


def _read_server(url: str, op: str) -> tuple[list[Entry], list[str]]:
    try:
        import psycopg
    except ModuleNotFoundError as error:
        msg = f"reading {without_password(url)} needs psycopg: pip install 'psycopg[binary]'"
        raise ModuleNotFoundError(msg) from error
    try:
        with psycopg.connect(_DRIVER.sub("postgresql://", url), connect_timeout=10) as connection:
            connection.read_only = True
            return _read(lambda query, *values: connection.execute(query.format("%s"), values).fetchall(), op)
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        msg = f"cannot read {without_password(url)}: {reason}"
        raise ValueError(msg) from error


def _read(ask: Ask, op: str) -> tuple[list[Entry], list[str]]:
    names = [name for (name,) in ask(_OPS)]
    found = next((name for name in spellings(op) if name in names), None)
    if found is None:
        return [], names
    executions: dict[int, list[dict[str, object]]] = {}
    for number, source, details in ask(_EXECUTIONS, found):
        rest = _plain(json.loads(details)) if details else {}
        executions.setdefault(number, []).append({"source": source, **rest})
    rows = ask(_CONFIGURATIONS, found)
    return [_database_entry(found, row[1:], executions.get(row[0], [])) for row in rows], names


def _database_entry(op: str, row: tuple[str, str, str | None], executions: Iterable[dict[str, object]]) -> Entry:
    key, body, knowledge = row
    description = json.loads(body)
    foreign = (json.loads(knowledge) if knowledge else {}).get("foreign") or []
    arguments = {one["name"]: _plain(one.get("value")) for one in description.get("arguments", ())}
    is_list = any(one["format"].startswith(_LIST_FORMATS) for one in foreign)
    kind = "aten" if not op.startswith("ttnn") else "list" if is_list else "dict"
    hashed = next((one["hash"] for one in foreign if one.get("hash")), None)
    is_from_master = any(one["format"].startswith("ttnn_master") for one in foreign)
    return made_entry(op, arguments, executions, hashed if hashed or is_from_master else key, kind)


def _plain(value: object) -> Any:
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


def _atom(value: Mapping[str, Any]) -> object:
    readers: dict[str, Any] = {"float": float, "int": int, "complex": complex}
    reader = readers.get(value["kind"])
    return reader(value["text"]) if reader else {"type": value["kind"], "repr": value["text"]}

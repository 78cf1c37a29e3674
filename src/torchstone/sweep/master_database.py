"""Traced configurations of an op, from a database of torchstone: a SQLite file, or PostgreSQL by URL.

Sweep modules read them where torchstone itself need not be installed: the standard library, and psycopg for PostgreSQL.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from torchstone.sweep.master_entries import UNREADABLE, Entry, spellings

Ask = Callable[..., list[tuple[Any, ...]]]

_DRIVER = re.compile(r"^postgres(ql)?(\+\w+)?://")
_PASSWORD = re.compile(r"://([^:@/]*):[^@/]*@")
_OPS = (  # from one op to the next in the index, not over all configurations
    "WITH RECURSIVE ops(op) AS (SELECT min(op) FROM configuration UNION ALL "
    "SELECT (SELECT min(op) FROM configuration WHERE op > ops.op) FROM ops WHERE ops.op IS NOT NULL) "
    "SELECT op FROM ops WHERE op IS NOT NULL"
)
_CONFIGURATIONS = "SELECT id, key, body, knowledge FROM configuration WHERE op = {} ORDER BY key"
_EXECUTIONS = (
    "SELECT DISTINCT occurrence.configuration, origin.source, place.details FROM configuration "
    "JOIN occurrence ON occurrence.configuration = configuration.id JOIN origin ON origin.id = occurrence.origin "
    "JOIN place ON place.id = occurrence.place WHERE configuration.op = {}"
)


def is_server(address: str) -> bool:
    """Whether an address is that of a PostgreSQL database."""
    return _DRIVER.match(address) is not None


def read_database(address: str, op: str) -> tuple[list[Entry], list[str]]:
    """The configurations of an op under any of its spellings, and all ops that the database has."""
    read = _read_server if is_server(address) else _read_file
    return read(address, op)


def without_password(address: str) -> str:
    """An address as messages name it."""
    return _PASSWORD.sub(r"://\1@", address)


def _read_file(path: str, op: str) -> tuple[list[Entry], list[str]]:
    try:
        with closing(sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return _read(lambda query, *values: connection.execute(query.format("?"), values).fetchall(), op)
    except sqlite3.DatabaseError as error:
        msg = f"{path} is not a database of torchstone: {error}"
        raise ValueError(msg) from error


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
    executions: dict[int, list[tuple[str, str]]] = {}
    for number, source, details in ask(_EXECUTIONS, found):
        executions.setdefault(number, []).append((source, details or ""))
    rows = ask(_CONFIGURATIONS, found)
    return [_entry(found, row[1:], sorted(executions.get(row[0], []))) for row in rows], names


def _entry(op: str, row: tuple[str, str, str | None], executions: list[tuple[str, str]]) -> Entry:
    key, body, knowledge = row
    told = json.loads(body)
    foreign = (json.loads(knowledge) if knowledge else {}).get("foreign") or []
    arguments = {one["name"]: _plain(one.get("value")) for one in told.get("arguments", ())}
    return Entry(
        op,
        arguments,
        [{"source": source, **(_plain(json.loads(details)) if details else {})} for source, details in executions],
        next((one["hash"] for one in foreign if one.get("hash")), key),
        is_list=any("v0" in one["format"] or "v1" in one["format"] for one in foreign),
        is_aten=not op.startswith("ttnn"),
    )


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

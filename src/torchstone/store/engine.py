"""Connections to a database: how they are set up, and how writers take turns."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, OperationalError

from torchstone.errors import InputError, UnreadableFileError
from torchstone.store.address import file_of, shown

_WAIT_MS = 120_000  # for another writer
_CACHE_KIB = 65_536  # SQLite's own 2 MiB reads the same pages again and again in a table of a million
_WRITERS_LOCK = 0x746F7263  # one number for all writers of a PostgreSQL database
_NOT_WRITTEN = ("SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_TRUNCATE", "SQLITE_IOERR_SHMSIZE")
_DAMAGED = ("malformed", "not a database", "disk image", "disk I/O error", "database corruption")


def engine_for(address: URL) -> Engine:
    """An engine that opens connections the way torchstone needs them."""
    path = file_of(address)
    if path is None:
        return create_engine(address, connect_args={"connect_timeout": 10})
    if path.is_file() and not os.access(path, os.W_OK):
        return create_engine(address, creator=partial(_open_for_reading, path))
    engine = create_engine(address, connect_args={"timeout": _WAIT_MS / 1000})
    event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _open_for_reading(path: Path) -> sqlite3.Connection:
    """Somebody else's file: nothing is written, not even the files that readers of a living database share."""
    living = path.with_name(f"{path.name}-wal").exists()
    how = "mode=ro" if living else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, isolation_level=None, check_same_thread=False)


def _set_up_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # we begin transactions ourselves: the driver would begin them too late
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA journal_mode=WAL")  # readers and a writer at the same time
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
    finally:
        cursor.close()


@contextmanager
def reading_from(engine: Engine) -> Iterator[Connection]:
    """A connection that sees one state of the database from beginning to end."""
    with named_errors(engine.url), engine.connect() as connection:
        _begin(connection, "BEGIN")
        yield connection
        connection.rollback()


@contextmanager
def writing_to(engine: Engine) -> Iterator[Connection]:
    """A connection that writes alone: all of it is kept, or nothing."""
    with named_errors(engine.url), engine.connect() as connection:
        _begin(connection, "BEGIN IMMEDIATE")
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _WRITERS_LOCK})
        yield connection
        connection.commit()


def _begin(connection: Connection, command: str) -> None:
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(command)
    else:
        level = "REPEATABLE READ" if command == "BEGIN" else "READ COMMITTED"
        connection.execution_options(isolation_level=level)


def vacuum(connection: Connection) -> None:
    """Give unused space back; no transaction may be open."""
    if connection.dialect.name == "sqlite":
        for command in ("VACUUM", "ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"):
            connection.exec_driver_sql(command)
    else:
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM (ANALYZE)")


@contextmanager
def named_errors(address: URL) -> Iterator[None]:
    """What a database can do to its user, as one sentence with the way out."""
    try:
        yield
    except DBAPIError as error:
        raise _named(error, address) from error


def _named(error: DBAPIError, address: URL) -> Exception:
    reason = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
    name = shown(address)
    if getattr(error.orig, "sqlite_errorname", "") in _NOT_WRITTEN:
        msg = f"{name} cannot be written to ({reason}); is the disk full, or a quota? What was stored so far is kept"
        return InputError(msg)
    if any(word in reason for word in _DAMAGED):
        msg = f"{name} is damaged ({reason}); it was left as it is: use a copy, or import into another file"
        return UnreadableFileError(msg)
    if "locked" in reason:
        return InputError(f"{name} is in use by another program that does not let go; try again later")
    if "readonly" in reason or "read-only" in reason:
        return InputError(f"{name} cannot be written to; give another file with --db")
    if "full" in reason or "No space" in reason:
        return InputError(f"no space left for {name}; what was stored so far is kept")
    if isinstance(error, OperationalError):
        return InputError(f"cannot use the database {name}: {reason}")
    return error

"""The address of a database, connections to it, how writers take turns, and migrations to the newest tables."""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, MultipleResultsFound, OperationalError

from torchstone.errors import InputError, MissingExtraError, NewerSchemaError, UnreadableFileError
from torchstone.foreign import computed_tables
from torchstone.record.files import shortened
from torchstone.store import without_password
from torchstone.store.tables import metadata

if TYPE_CHECKING:
    from alembic.script import Script

# --- Addresses: the value of --db ---


def address_of(text: str) -> URL:
    """A path, sqlite:///path or postgresql://user@host/name as an address that an engine takes."""
    if not text:
        msg = "the address of a database is empty; give a file, or postgresql://user@host/name"
        raise InputError(msg)
    if "://" not in text:
        return URL.create("sqlite", database=text)
    try:
        address = make_url(text)
    except (ArgumentError, ValueError) as error:
        msg = f"{without_password(text)} is not a database address; give a file, or postgresql://user@host/name"
        raise InputError(msg) from error
    match address.get_backend_name():
        case "sqlite" if address.database:
            return address
        case "postgresql" | "postgres":
            _require_psycopg()
            return address.set(drivername="postgresql+psycopg")
        case kind:
            msg = f"unsupported database: {kind}; torchstone uses SQLite or PostgreSQL: give a file or postgresql://..."
            raise InputError(msg)


def file_of(address: URL) -> Path | None:
    """The file of a SQLite database; None for a server."""
    return Path(address.database) if address.get_backend_name() == "sqlite" and address.database else None


def display_name(address: URL) -> str:
    """The address as messages name it: the file, or the URL without its password."""
    path = file_of(address)
    return str(path) if path is not None else address.set(drivername="postgresql").render_as_string(hide_password=True)


def _require_psycopg() -> None:
    from importlib.util import find_spec

    if find_spec("psycopg") is None:
        raise MissingExtraError(needed_for="a PostgreSQL database", extra="postgres")


# --- Connections: their setup, and how writers take turns ---


_WAIT_MS = 120_000  # for another writer
_CACHE_KIB = 65_536  # SQLite's own 2 MiB reads the same pages again and again in a table of a million
_WRITER_LOCK = 0x746F7263  # one number for all writers of a PostgreSQL database
_NOT_WRITTEN = ("SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_TRUNCATE", "SQLITE_IOERR_SHMSIZE")
_DAMAGED = ("malformed", "not a database", "disk image", "disk I/O error", "database corruption")


def engine_for(address: URL) -> Engine:
    """An engine whose connections have torchstone's settings."""
    path = file_of(address)
    if path is None:
        return create_engine(address, connect_args={"connect_timeout": 10})
    if path.is_file() and not os.access(path, os.W_OK):
        return create_engine(address, creator=partial(_open_for_reading, path))
    engine = create_engine(address, connect_args={"timeout": _WAIT_MS / 1000})
    event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a read-only file without writing the shared-memory files that readers of a database in use need."""
    is_in_use = path.with_name(f"{path.name}-wal").exists()
    mode = "mode=ro" if is_in_use else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, isolation_level=None, check_same_thread=False)


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
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
    """A connection that sees one snapshot of the database throughout."""
    with readable_errors(engine.url), engine.connect() as connection:
        _begin(connection, "BEGIN")
        yield connection
        connection.rollback()


@contextmanager
def writing_to(engine: Engine) -> Iterator[Connection]:
    """A connection with the writer lock; commits everything on success, nothing on an error."""
    with readable_errors(engine.url), engine.connect() as connection:
        _begin(connection, "BEGIN IMMEDIATE")
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _WRITER_LOCK})
        yield connection
        connection.commit()


def _begin(connection: Connection, command: str) -> None:
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(command)
    else:
        level = "REPEATABLE READ" if command == "BEGIN" else "READ COMMITTED"
        connection.execution_options(isolation_level=level)


def vacuum(connection: Connection) -> None:
    """Free unused space; no transaction may be open."""
    if connection.dialect.name == "sqlite":
        for command in ("VACUUM", "ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"):
            connection.exec_driver_sql(command)
    else:
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM (ANALYZE)")


@contextmanager
def readable_errors(address: URL) -> Iterator[None]:
    """Convert errors of the database to one sentence with the way out."""
    try:
        yield
    except DBAPIError as error:
        raise _readable_error(error, address) from error
    except (UnicodeDecodeError, msgspec.DecodeError, MultipleResultsFound) as error:
        # SQLite checks neither texts nor documents, and a damaged index lets a row stand twice.
        msg = f"{display_name(address)} is damaged ({shortened(error)}); it was not changed: use a copy"
        raise UnreadableFileError(msg) from error
    except MemoryError:  # SQLite's answer to some damage, whatever memory there is
        msg = f"{display_name(address)} is damaged, or needs more memory than there is; it was not changed: use a copy"
        raise UnreadableFileError(msg) from None


def _readable_error(error: DBAPIError, address: URL) -> Exception:
    reason = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
    name = display_name(address)
    if getattr(error.orig, "sqlite_errorname", "") in _NOT_WRITTEN:
        msg = f"{name} cannot be written to ({reason}); check for a full disk or a quota. Earlier data is kept"
        return InputError(msg)
    if any(word in reason for word in _DAMAGED):
        msg = f"{name} is damaged ({reason}); it was not changed: use a copy, or import into another file"
        return UnreadableFileError(msg)
    if "locked" in reason:
        return InputError(f"{name} is locked: it is in use by another program; try again later")
    if "readonly" in reason or "read-only" in reason:
        return InputError(f"{name} cannot be written to; give another file with --db")
    if "full" in reason or "No space" in reason:
        return InputError(f"no space left for {name}; free some space. Earlier data is kept")
    if isinstance(error, OperationalError):
        return InputError(f"cannot use the database {name}: {reason}")
    return error


# --- Migrations. Alembic is imported only when a step is pending: the import takes longer than most queries ---


VERSION_TABLE = "torchstone_version"
_STEPS = Path(__file__).parent / "migrations"
_STEP_FILE = re.compile(r"v(?P<revision>\d{4})_\w+\.py")
_version = Table(VERSION_TABLE, MetaData(), Column("version_num", Text))  # Alembic's own table, under our name


def migrate(connection: Connection, *, origin: str) -> None:
    """Apply the pending steps; the caller holds the writer lock and an open transaction."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory

    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    steps = ScriptDirectory(str(_STEPS))
    pending = _pending(list(steps.walk_revisions())[::-1], current_version(connection, origin=origin))
    if not pending:
        return
    with Operations.context(context):
        for step in pending:
            step.module.upgrade()
    context.stamp(steps, "head")


def _pending(steps: "list[Script]", version: str | None) -> "list[Script]":
    """The steps after the version of the database, oldest first."""
    return [step for step in steps if version is None or step.revision > version]


def is_current(connection: Connection, *, origin: str) -> bool:
    """Whether a database has the newest tables."""
    return current_version(connection, origin=origin) == known_versions()[-1]


def current_version(connection: Connection, *, origin: str) -> str | None:
    """The version of a database; None where it is empty. One of another program, or a newer one, is refused."""
    if connection.dialect.name == "sqlite":
        _refuse_computed(connection, origin=origin)
    tables = inspect(connection).get_table_names()
    if VERSION_TABLE not in tables:
        if tables and connection.dialect.name == "sqlite":
            msg = f"{origin} is the SQLite file of another program; give another file with --db"
            raise UnreadableFileError(msg)
        return None
    version = connection.execute(select(_version.c.version_num)).scalar_one_or_none()
    if version is not None and version not in known_versions():
        msg = f"{origin} was written by a newer torchstone (tables of version {version}); upgrade torchstone"
        raise NewerSchemaError(msg)
    return version


def _refuse_computed(connection: Connection, *, origin: str) -> None:
    """Refuse a table of ours that is a view, has a trigger or a column that is computed: we make none of them."""
    if computed := sorted(connection.exec_driver_sql(computed_tables(metadata.tables)).scalars()):
        how = "by a view, a trigger or a column"
        msg = f"{origin} computes what its table {computed[0]:.80} has ({how}); give another file with --db"
        raise UnreadableFileError(msg)


@cache
def known_versions() -> tuple[str, ...]:
    """The versions that this torchstone knows, oldest first, from the file names of the steps."""
    found = (_STEP_FILE.fullmatch(path.name) for path in (_STEPS / "versions").iterdir())
    return tuple(sorted(step["revision"] for step in found if step is not None))

"""The database that a request names -> an open store, and the configurations that a filter selects in it."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.errors import InputError, require_package

if TYPE_CHECKING:
    from torchstone.store.database import Store
    from torchstone.store.rows import Query

DEFAULT_DATABASE = "torchstone.db"
DATABASE_VARIABLE = "TORCHSTONE_DB"
_MOST_NAMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationFilter:
    """Which configurations of a database to select; None: any."""

    op: str | None = None  # the whole op name
    model: str | None = None  # a model name, or a part of it
    source: str | None = None  # the name of a test, script or file, or a part of it
    dtype: str | None = None  # a tensor of this element type is among the arguments
    rank: int | None = None  # a tensor with this number of dimensions is among the arguments


def database_address(database: str | None) -> str:
    """The database of this run: the one requested, that of the environment variable, or the default file."""
    return database or os.environ.get(DATABASE_VARIABLE) or DEFAULT_DATABASE


def database_variable(database: str | None) -> dict[str, str]:
    """The environment in which a child process finds the same database, whatever its working directory is."""
    address = database_address(database)
    return {DATABASE_VARIABLE: address if "://" in address else str(Path(address).resolve())}


def existing_database(database: str | None) -> str | None:
    """The database to keep results in: one that is named, or the default file where it exists; None otherwise."""
    address = database_address(database)
    named = database is not None or "://" in address
    return address if named or Path(address).is_file() else None


def with_database(command: str, database: str | None) -> str:
    """A command line for the same database, to suggest to the user; it carries no password."""
    from torchstone.store import without_password

    return f"{command} --db {shlex.quote(without_password(database))}" if database else command


def open_store(database: str | None, *, create: bool = False) -> "Store":
    """Open the database of a request; the caller closes it, best as a context manager.

    Raises InputError where it cannot be opened, and for a missing file unless `create`.
    """
    require_package("sqlalchemy", needed_for="the database of configurations")
    from torchstone.store.database import Store

    return Store.open(database_address(database), create=create)


def query_of(store: "Store", wanted: ConfigurationFilter) -> "Query":
    """The query of a filter; raises InputError for a model or source that the database does not have."""
    from torchstone.store.rows import Query

    return Query(
        op=wanted.op,
        models=_names_matching("model", wanted.model, store.models()),
        sources=_names_matching("source", wanted.source, store.sources()),
        dtype=wanted.dtype,
        rank=wanted.rank,
    )


def _names_matching(kind: str, text: str | None, names: Sequence[str]) -> tuple[str, ...] | None:
    """The name that is the text, or else all names that contain it; None without a text."""
    if text is None:
        return None
    found = (text,) if text in names else tuple(name for name in names if text.lower() in name.lower())
    if not found:
        known = ", ".join(filter(None, names[:_MOST_NAMES])) + (", ..." if len(names) > _MOST_NAMES else "")
        msg = f"no {kind} contains {text!r}; the database has {known or 'none'}"
        raise InputError(msg)
    return found

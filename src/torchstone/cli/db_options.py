"""--db: which database a command reads or writes."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from torchstone.store.database import Store

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_DATABASE = "torchstone.db"
DATABASE_VARIABLE = "TORCHSTONE_DB"


def db_option(function: F) -> F:
    """Add --db."""
    option = click.option(
        "--db",
        "database",
        metavar="FILE|URL",
        help=f"A SQLite file, or postgresql://user@host/name; without it ${DATABASE_VARIABLE}, or {DEFAULT_DATABASE}.",
    )
    return option(function)


def database_address(given: str | None) -> str:
    """The database of this run: the one asked for, that of the environment, or the file everybody uses."""
    return given or os.environ.get(DATABASE_VARIABLE) or DEFAULT_DATABASE


def open_store(given: str | None, *, create: bool = False) -> "Store":
    """The database that --db names; a missing file is made only where `create` says so."""
    from torchstone.store.database import Store

    return Store.open(database_address(given), create=create)

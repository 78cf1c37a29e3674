"""--db: which database a command reads or writes."""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchstone.errors import InputError

if TYPE_CHECKING:
    from torchstone.store.database import Store
    from torchstone.store.reading import Query

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_DATABASE = "torchstone.db"
DATABASE_VARIABLE = "TORCHSTONE_DB"
_MOST_NAMES = 8


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


def database_variable(given: str | None) -> dict[str, str]:
    """The environment in which a process finds the same database, whatever folder it works in."""
    address = database_address(given)
    return {DATABASE_VARIABLE: address if "://" in address else str(Path(address).resolve())}


def with_database(command: str, given: str | None) -> str:
    """A command line that somebody may type next, on the same database."""
    from torchstone.store.address import without_password

    return f"{command} --db {shlex.quote(without_password(given))}" if given else command


def command_line() -> str:
    """The command that is running, as records keep it: a password in the address of a database is left out."""
    from torchstone.store.address import without_password

    return shlex.join(["torchstone", *map(without_password, sys.argv[1:])])


def open_store(given: str | None, *, create: bool = False) -> "Store":
    """The database that --db names; a missing file is made only where `create` says so."""
    from torchstone.store.database import Store

    return Store.open(database_address(given), create=create)


def filter_options(function: F) -> F:
    """Add the options that choose configurations: --model, --source, --dtype, --rank."""
    for option in (
        click.option("--rank", type=click.IntRange(min=0), help="Only configurations with a tensor of so many sizes."),
        click.option("--dtype", metavar="NAME", help="Only configurations with a tensor of this element type."),
        click.option("--source", metavar="TEXT", help="Only what was seen in sources whose name contains TEXT."),
        click.option("--model", metavar="TEXT", help="Only what was seen in models whose name contains TEXT."),
    ):
        function = option(function)
    return function


def query_of(
    store: "Store", *, model: str | None, source: str | None, dtype: str | None, rank: int | None, op: str | None = None
) -> "Query":
    """The query that the options ask for; a model or source that the database does not have is an error."""
    from torchstone.store.reading import Query

    return Query(
        op=op,
        models=_named("model", model, store.models()),
        sources=_named("source", source, store.sources()),
        dtype=dtype,
        rank=rank,
    )


def _named(kind: str, text: str | None, names: Sequence[str]) -> tuple[str, ...] | None:
    """The names that a text stands for: the one that it is, or all that contain it."""
    if text is None:
        return None
    found = (text,) if text in names else tuple(name for name in names if text.lower() in name.lower())
    if not found:
        known = ", ".join(filter(None, names[:_MOST_NAMES])) + (", ..." if len(names) > _MOST_NAMES else "")
        msg = f"no {kind} contains {text!r}; the database has {known or 'none'}"
        raise InputError(msg)
    return found

"""Bring a database to the newest tables. Alembic is imported only where there is something to do."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Column, Connection, MetaData, Table, Text, inspect, select

from torchstone.errors import NewerSchemaError, UnreadableFileError

if TYPE_CHECKING:
    from alembic.script import Script

VERSION_TABLE = "torchstone_version"
_STEPS = Path(__file__).parent / "migrations"
_STEP_FILE = re.compile(r"v(?P<revision>\d{4})_\w+\.py")
_version = Table(VERSION_TABLE, MetaData(), Column("version_num", Text))  # Alembic's own table, under our name


def migrate(connection: Connection, *, origin: str) -> None:
    """Apply the steps that this database has not seen; the caller holds the writers' lock and a transaction."""
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
    """The steps after the newest that the database has seen, oldest first."""
    return [step for step in steps if version is None or step.revision > version]


def is_current(connection: Connection, *, origin: str) -> bool:
    """Whether a database has the newest tables."""
    return current_version(connection, origin=origin) == known_versions()[-1]


def current_version(connection: Connection, *, origin: str) -> str | None:
    """The newest step a database has seen; None where it is empty. One that is not ours, or newer, is refused."""
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


def known_versions() -> list[str]:
    """The steps that this torchstone knows, oldest first; each has its number in the name of its file."""
    found = (_STEP_FILE.fullmatch(path.name) for path in (_STEPS / "versions").iterdir())
    return sorted(step["revision"] for step in found if step is not None)

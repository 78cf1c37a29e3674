"""Bring a database to the newest tables."""

from collections.abc import Sequence
from pathlib import Path

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection, inspect

from torchstone.errors import NewerSchemaError, UnreadableFileError

VERSION_TABLE = "torchstone_version"
_STEPS = Path(__file__).parent / "migrations"


def migrate(connection: Connection, *, origin: str) -> None:
    """Apply the steps that this database has not seen; the caller holds the writers' lock and a transaction."""
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    steps = ScriptDirectory(str(_STEPS))
    pending = _pending(steps, current_version(connection, origin=origin), origin=origin)
    if not pending:
        return
    with Operations.context(context):
        for step in pending:
            step.module.upgrade()
    context.stamp(steps, "head")


def is_current(connection: Connection, *, origin: str) -> bool:
    """Whether a database has the newest tables."""
    return not _pending(ScriptDirectory(str(_STEPS)), current_version(connection, origin=origin), origin=origin)


def current_version(connection: Connection, *, origin: str) -> str | None:
    """The newest step a database has seen; None where it is empty. One of another program is refused."""
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    version = context.get_current_revision()
    if version is None and connection.dialect.name == "sqlite" and inspect(connection).get_table_names():
        msg = f"{origin} is the SQLite file of another program; give another file with --db"
        raise UnreadableFileError(msg)
    return version


def _pending(steps: ScriptDirectory, version: str | None, *, origin: str) -> Sequence[Script]:
    known = list(steps.walk_revisions())  # newest first
    if version is None:
        return known[::-1]
    names = [step.revision for step in known]
    if version not in names:
        msg = f"{origin} was written by a newer torchstone (tables of version {version}); upgrade torchstone"
        raise NewerSchemaError(msg)
    return known[: names.index(version)][::-1]

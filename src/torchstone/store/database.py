"""Store: the database of configurations, opened once and used from one process; and the check of its contents."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from sqlalchemy import Connection, Engine, func, select, text

from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.base import Record
from torchstone.record.config import OpSummary, SeenConfiguration, StoreInfo, TraceRun
from torchstone.store import rows
from torchstone.store.engine import (
    address_of,
    display_name,
    engine_for,
    file_of,
    is_current,
    migrate,
    readable_errors,
    reading_from,
    vacuum,
    writing_to,
)
from torchstone.store.rows import Added, Query, add_chunk, add_run, chunks_of, configuration_row, seen_of
from torchstone.store.superseded import drop_superseded
from torchstone.store.tables import configuration, occurrence, origin, place
from torchstone.units import many

# --- Consistency check: keys, projections, counts, references, and SQLite's own structure ---


_PAGE = 5_000
_PROJECTIONS = ("key", "op", "dtypes", "ranks", "body")


class Fault(Record, frozen=True, kw_only=True):
    """One inconsistency of a database."""

    where: str  # a key, or a table
    reason: str


def faults_of(connection: Connection) -> Iterator[Fault]:
    """Every inconsistency; nothing is changed."""
    yield from _structure_faults(connection)
    yield from _configuration_faults(connection)
    yield from _reference_faults(connection)


def _structure_faults(connection: Connection) -> Iterator[Fault]:
    if connection.dialect.name == "sqlite":
        for row in connection.execute(text("PRAGMA integrity_check")):
            if row[0] != "ok":
                yield Fault(where="file", reason=str(row[0]))


def _configuration_faults(connection: Connection) -> Iterator[Fault]:
    """The body is authoritative: its key and projections are computed again and compared."""
    columns = configuration.c
    for page in connection.execute(select(configuration).order_by(columns.id)).mappings().partitions(_PAGE):
        for row in page:
            try:
                seen = seen_of(row["body"], row["knowledge"])
                expected = configuration_row(seen, key=seen.key, number=row["id"])
            except (msgspec.DecodeError, ValueError) as error:
                yield Fault(where=row["key"], reason=f"its JSON cannot be read ({error})")
                continue
            for name in _PROJECTIONS:
                if row[name] != expected[name]:
                    yield Fault(where=row["key"], reason=f"its {name} does not match its JSON")


def _reference_faults(connection: Connection) -> Iterator[Fault]:
    for table, column in (
        (configuration, occurrence.c.configuration),
        (origin, occurrence.c.origin),
        (place, occurrence.c.place),
    ):
        missing = select(func.count()).select_from(occurrence.outerjoin(table, table.c.id == column))
        number = connection.execute(missing.where(table.c.id.is_(None))).scalar_one()
        if number:
            yield Fault(
                where="occurrence", reason=f"{many(number, 'row refers', 'rows refer')} to a missing {table.name}"
            )
    negative = select(func.count()).select_from(occurrence).where(occurrence.c.count < 0)
    if number := connection.execute(negative).scalar_one():
        yield Fault(where="occurrence", reason=f"{number} counts are negative")


# --- Store ---


class Store:
    """A database of configurations; `with Store.open("torchstone.db") as store:`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @classmethod
    def open(cls, url: str, *, create: bool = True) -> Self:
        """Open a SQLite file or the database of a URL; a missing file is created unless `create` is False."""
        address = address_of(url)
        path = file_of(address)
        if path is not None and not create and not path.is_file():
            msg = f"there is no database {path}; create one with `torchstone db import` or `torchstone trace`"
            raise UnreadableFileError(msg)
        if path is not None:
            _make_folder_of(path)
        store = cls(engine_for(address))
        with ExitStack() as unless_done:
            unless_done.callback(store.close)
            store._bring_up_to_date()
            unless_done.pop_all()
        return store

    def _bring_up_to_date(self) -> None:
        with reading_from(self.engine) as connection:
            current = is_current(connection, origin=self.name)
        if not current:
            with writing_to(self.engine) as connection:
                migrate(connection, origin=self.name)

    @property
    def name(self) -> str:
        """The file, or the URL without its password."""
        return display_name(self.engine.url)

    def add(self, seen: Iterable[SeenConfiguration], *, runs: Iterable[TraceRun] = (), replaces: bool = False) -> Added:
        """Merge configurations into the database; adding the same again changes nothing.

        Each occurrence names its source and run; its count is that of the whole run so far. Older traces of the sources
        of the runs are removed, with `replaces` also earlier contents of the same file. Configurations are stored chunk
        by chunk, the runs with the last chunk: a run in the database was therefore added completely.
        """
        added = Added()
        waiting: dict[str, SeenConfiguration] = {}
        for chunk in chunks_of(seen):
            if waiting:
                with writing_to(self.engine) as connection:
                    added += add_chunk(connection, waiting)
            waiting = chunk
        complete = tuple(runs)
        with writing_to(self.engine) as connection:
            added += add_chunk(connection, waiting)
            for run in complete:
                add_run(connection, run)
            drop_superseded(connection, complete, replaces=replaces)
        return added

    def configurations(self, query: Query | None = None) -> Iterator[SeenConfiguration]:
        """The configurations that match, all from one snapshot of the database, by op and key."""
        with reading_from(self.engine) as connection:
            yield from rows.read_configurations(connection, query or Query())

    def operations(self, query: Query | None = None) -> tuple[OpSummary, ...]:
        """The ops with matching configurations, by name."""
        with reading_from(self.engine) as connection:
            return tuple(rows.read_operations(connection, query or Query()))

    def runs(self) -> tuple[TraceRun, ...]:
        """The trace runs that were added."""
        with reading_from(self.engine) as connection:
            return tuple(rows.read_runs(connection))

    def op_names(self) -> tuple[str, ...]:
        """The ops that have configurations, by name."""
        with reading_from(self.engine) as connection:
            return rows.read_op_names(connection)

    def models(self) -> tuple[str, ...]:
        """The models that configurations were seen in."""
        with reading_from(self.engine) as connection:
            return rows.read_models(connection)

    def sources(self) -> tuple[str, ...]:
        """The sources that configurations were seen in."""
        with reading_from(self.engine) as connection:
            return rows.read_sources(connection)

    def info(self) -> StoreInfo:
        """The size of the database: configurations, operations, sources and calls."""
        with reading_from(self.engine) as connection:
            return rows.read_info(connection)

    def faults(self) -> tuple[Fault, ...]:
        """The inconsistencies of the database; nothing is changed."""
        with reading_from(self.engine) as connection:
            return tuple(faults_of(connection))

    def vacuum(self) -> None:
        """Free unused space and update the statistics of the query planner."""
        with readable_errors(self.engine.url), self.engine.connect() as connection:
            vacuum(connection)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _make_folder_of(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot create the folder {path.parent} for the database: {error.strerror or error}"
        raise InputError(msg) from error

"""Store: the database of configurations, opened once and used from one process."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import Engine

from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.config import OpSummary, SeenConfiguration, StoreInfo, TraceRun
from torchstone.store import reading
from torchstone.store.adding import Added, add_chunk, add_run, chunks_of
from torchstone.store.address import address_of, file_of, shown
from torchstone.store.checking import Fault, faults_of
from torchstone.store.engine import engine_for, named_errors, reading_from, vacuum, writing_to
from torchstone.store.migrating import is_current, migrate
from torchstone.store.reading import Query


class Store:
    """A database of configurations; `with Store.open("torchstone.db") as store:`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @classmethod
    def open(cls, url: str, *, create: bool = True) -> Self:
        """Open a SQLite file or the database of a URL; a missing file is made only where `create` says so."""
        address = address_of(url)
        path = file_of(address)
        if path is not None and not create and not path.is_file():
            msg = f"there is no database {path}; make one with `torchstone db import` or `torchstone trace`"
            raise UnreadableFileError(msg)
        if path is not None:
            _make_folder_of(path)
        store = cls(engine_for(address))
        try:
            store._bring_up_to_date()
        except BaseException:
            store.close()
            raise
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
        return shown(self.engine.url)

    def add(self, seen: Iterable[SeenConfiguration], *, runs: Iterable[TraceRun] = ()) -> Added:
        """Merge what was seen into the database; adding the same again changes nothing.

        Each occurrence names its source and run; its count is that of the whole run so far. Configurations are kept
        chunk by chunk, the runs at the end: a run that the database knows was added as a whole.
        """
        added = Added()
        for chunk in chunks_of(seen):
            with writing_to(self.engine) as connection:
                added += add_chunk(connection, chunk)
        with writing_to(self.engine) as connection:
            for run in runs:
                add_run(connection, run)
        return added

    def configurations(self, query: Query | None = None) -> Iterator[SeenConfiguration]:
        """The configurations that fit, all from one state of the database, by op and key."""
        with reading_from(self.engine) as connection:
            yield from reading.read_configurations(connection, query or Query())

    def operations(self, query: Query | None = None) -> tuple[OpSummary, ...]:
        """The ops that have configurations that fit, by name."""
        with reading_from(self.engine) as connection:
            return tuple(reading.read_operations(connection, query or Query()))

    def runs(self) -> tuple[TraceRun, ...]:
        """The trace runs that were added."""
        with reading_from(self.engine) as connection:
            return tuple(reading.read_runs(connection))

    def op_names(self) -> tuple[str, ...]:
        """The ops that have configurations, by name."""
        with reading_from(self.engine) as connection:
            return reading.read_op_names(connection)

    def models(self) -> tuple[str, ...]:
        """The models that configurations were seen in."""
        with reading_from(self.engine) as connection:
            return reading.read_models(connection)

    def sources(self) -> tuple[str, ...]:
        """The sources that configurations were seen in."""
        with reading_from(self.engine) as connection:
            return reading.read_sources(connection)

    def info(self) -> StoreInfo:
        """What the database holds, in numbers."""
        with reading_from(self.engine) as connection:
            return reading.read_info(connection)

    def faults(self) -> tuple[Fault, ...]:
        """What in the database does not hold; nothing is changed."""
        with reading_from(self.engine) as connection:
            return tuple(faults_of(connection))

    def vacuum(self) -> None:
        """Give unused space back and renew the statistics that queries are planned with."""
        with named_errors(self.engine.url), self.engine.connect() as connection:
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
        msg = f"cannot make the folder {path.parent} for the database: {error.strerror or error}"
        raise InputError(msg) from error

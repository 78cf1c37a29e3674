"""A database -> what in it does not hold: keys, projections, counts, references, and SQLite's own structure."""

from collections.abc import Iterator

import msgspec
from sqlalchemy import Connection, func, select, text

from torchstone.record.base import Record
from torchstone.store.rows import configuration_row, seen_of
from torchstone.store.tables import configuration, occurrence, origin, place

_PAGE = 5_000
_PROJECTIONS = ("key", "op", "dtypes", "ranks", "body")


class Fault(Record, frozen=True, kw_only=True):
    """One thing that does not hold."""

    where: str  # a key, or a table
    reason: str


def faults_of(connection: Connection) -> Iterator[Fault]:
    """Everything that does not hold; nothing is changed."""
    yield from _structure_faults(connection)
    yield from _configuration_faults(connection)
    yield from _reference_faults(connection)


def _structure_faults(connection: Connection) -> Iterator[Fault]:
    if connection.dialect.name == "sqlite":
        for row in connection.execute(text("PRAGMA integrity_check")):
            if row[0] != "ok":
                yield Fault(where="file", reason=str(row[0]))


def _configuration_faults(connection: Connection) -> Iterator[Fault]:
    """The body is the truth: its key and projections are made again and compared."""
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
                    yield Fault(where=row["key"], reason=f"its {name} does not follow from its JSON")


def _reference_faults(connection: Connection) -> Iterator[Fault]:
    for table, column in (
        (configuration, occurrence.c.configuration),
        (origin, occurrence.c.origin),
        (place, occurrence.c.place),
    ):
        missing = select(func.count()).select_from(occurrence.outerjoin(table, table.c.id == column))
        number = connection.execute(missing.where(table.c.id.is_(None))).scalar_one()
        if number:
            yield Fault(where="occurrence", reason=f"{number} rows name a {table.name} that is not there")
    negative = select(func.count()).select_from(occurrence).where(occurrence.c.count < 0)
    if number := connection.execute(negative).scalar_one():
        yield Fault(where="occurrence", reason=f"{number} counts are below zero")

"""SeenConfigurations -> rows, merged with what the database knows already."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from sqlalchemy import Connection, Insert, Table, bindparam, case, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from torchstone.record.base import Record
from torchstone.record.config import Occurrence, SeenConfiguration, TraceRun, in_order, merged
from torchstone.store.rows import (
    Row,
    configuration_row,
    knowledge_text,
    origin_of,
    origin_row,
    place_of,
    place_row,
    run_row,
    seen_of,
)
from torchstone.store.tables import configuration, occurrence, origin, place, trace_run

K = TypeVar("K")

CHUNK = 5_000  # configurations of one transaction: others get their turn in between


class Added(Record, frozen=True, kw_only=True):
    """What adding changed."""

    new: int = 0  # configurations that were not known
    known: int = 0  # configurations that were

    def __add__(self, other: "Added") -> "Added":
        return Added(new=self.new + other.new, known=self.known + other.known)


def chunks_of(seen: Iterable[SeenConfiguration]) -> Iterator[dict[str, SeenConfiguration]]:
    """Configurations by key, so many at a time, each once in its chunk."""
    remaining = iter(seen)
    while chunk := list(islice(remaining, CHUNK)):
        by_key: dict[str, SeenConfiguration] = {}
        for one in chunk:
            key = one.key
            by_key[key] = merged(by_key[key], one) if key in by_key else one
        yield by_key


def add_chunk(connection: Connection, seen: Mapping[str, SeenConfiguration]) -> Added:
    """Add one chunk; the caller is the only writer."""
    numbers = _known(connection, seen)
    new = [key for key in seen if key not in numbers]
    _update_knowledge(connection, {key: one for key, one in seen.items() if key in numbers}, numbers)
    first = _next_number(connection, configuration)
    fresh = {key: first + place for place, key in enumerate(new)}
    rows = [configuration_row(in_order(seen[key]), key=key, number=fresh[key]) for key in new]
    if rows:
        connection.execute(insert(configuration), rows)
    _add_occurrences(connection, seen, numbers | fresh)
    return Added(new=len(new), known=len(numbers))


def add_run(connection: Connection, run: TraceRun) -> None:
    """Add a trace run, or leave it as it is where it is known."""
    row = run_row(run)
    known = connection.execute(select(trace_run.c.digest).where(trace_run.c.digest == row["digest"])).first()
    if known is None:
        connection.execute(insert(trace_run), row)


def _known(connection: Connection, keys: Iterable[str]) -> dict[str, int]:
    query = select(configuration.c.key, configuration.c.id).where(configuration.c.key.in_(list(keys)))
    return {row.key: row.id for row in connection.execute(query)}


def _update_knowledge(
    connection: Connection, seen: Mapping[str, SeenConfiguration], numbers: Mapping[str, int]
) -> None:
    """Join what is new about known configurations to what the database says about them."""
    telling = {numbers[key]: one for key, one in seen.items() if knowledge_text(one) is not None}
    if not telling:
        return
    columns = configuration.c
    query = select(columns.id, columns.body, columns.knowledge).where(columns.id.in_(list(telling)))
    changed = []
    for number, body, knowledge in connection.execute(query):
        joined = knowledge_text(merged(seen_of(body, knowledge), telling[number]))
        if joined != knowledge:
            changed.append({"number": number, "joined": joined})
    if changed:
        change = update(configuration).where(columns.id == bindparam("number")).values(knowledge=bindparam("joined"))
        connection.execute(change, changed)


def _add_occurrences(connection: Connection, seen: Mapping[str, SeenConfiguration], numbers: Mapping[str, int]) -> None:
    found = [(numbers[key], one) for key, each in seen.items() for one in each.occurrences]
    if not found:
        return
    origins = _numbered(connection, origin, {origin_of(one): one for _, one in found}, origin_row)
    places = _numbered(connection, place, {place_of(one): one for _, one in found}, place_row)
    rows: dict[tuple[int, int, int], Row] = {}
    for number, one in found:
        at, where = origins[origin_of(one)], places[place_of(one)]
        rows[number, at, where] = {"configuration": number, "origin": at, "place": where, "count": one.count}
    connection.execute(_counting(connection), list(rows.values()))


def _numbered(
    connection: Connection, table: Table, told: Mapping[K, Occurrence], row_of: Callable[[Occurrence], Row]
) -> dict[K, int]:
    """The number of the row of each; rows that the table does not have are added."""
    rows = {key: row_of(one) for key, one in told.items()}
    query = select(table.c.digest, table.c.id).where(table.c.digest.in_([row["digest"] for row in rows.values()]))
    numbers: dict[str, int] = {row.digest: row.id for row in connection.execute(query)}
    missing = {row["digest"]: row for row in rows.values() if row["digest"] not in numbers}
    first = _next_number(connection, table)
    numbers |= {digest: number for number, digest in enumerate(missing, start=first)}
    if missing:
        connection.execute(insert(table), [{"id": numbers[digest], **row} for digest, row in missing.items()])
    return {key: numbers[row["digest"]] for key, row in rows.items()}


def _next_number(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.coalesce(func.max(table.c.id), 0))).scalar_one()) + 1


def _counting(connection: Connection) -> Insert:
    """Insert occurrences; where one is known, the larger count stays."""
    make: Callable[[Table], sqlite.Insert | postgresql.Insert]
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = make(occurrence)
    given, kept = statement.excluded["count"], occurrence.c.count
    larger = case((or_(kept.is_(None), given > kept), given), else_=kept)
    return statement.on_conflict_do_update(index_elements=["configuration", "origin", "place"], set_={"count": larger})

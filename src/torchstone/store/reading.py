"""Rows -> SeenConfigurations, chosen by op, model, source, element type or rank."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, distinct, func, select

from torchstone.record.base import Record
from torchstone.record.config import Occurrence, SeenConfiguration, TraceRun, counted_once
from torchstone.store.rows import occurrence_of, run_of, seen_of
from torchstone.store.tables import configuration, occurrence, origin, place, trace_run

_PAGE = 1_000  # configurations read at a time


class Query(Record, frozen=True, kw_only=True):
    """Which configurations are asked for; None: all."""

    op: str | None = None
    model: str | None = None
    source: str | None = None
    dtype: str | None = None
    rank: int | None = None
    key: str | None = None  # the beginning of a key is enough


class OpSummary(Record, frozen=True, kw_only=True):
    """One op of the database."""

    op: str
    configurations: int
    calls: int
    uncounted: int  # configurations with an occurrence whose calls nobody counted
    models: tuple[str, ...]


class StoreInfo(Record, frozen=True, kw_only=True):
    """What a database holds."""

    configurations: int
    operations: int
    sources: int
    calls: int
    uncounted: int  # occurrences whose calls nobody counted
    runs: int


def read_configurations(connection: Connection, query: Query) -> Iterator[SeenConfiguration]:
    """The configurations that fit, by op and key."""
    columns = configuration.c
    statement = select(columns.id, columns.body, columns.knowledge).where(*_conditions(query))
    for page in connection.execute(statement.order_by(columns.op, columns.key)).partitions(_PAGE):
        places = _occurrences(connection, [row.id for row in page])
        for row in page:
            yield seen_of(row.body, row.knowledge, places.get(row.id, ()))


def read_operations(connection: Connection, query: Query) -> Iterator[OpSummary]:
    """Each op that fits, with what is known about it, by name."""
    chosen = select(configuration.c.id, configuration.c.op).where(*_conditions(query)).subquery()
    counted = select(chosen.c.op, func.count().label("configurations")).group_by(chosen.c.op)
    configurations = {row.op: row.configurations for row in connection.execute(counted)}
    joined = chosen.join(occurrence, occurrence.c.configuration == chosen.c.id)
    counts = {
        row.op: row
        for row in connection.execute(
            select(
                chosen.c.op,
                func.coalesce(func.sum(occurrence.c.count), 0).label("calls"),
                func.count(case((occurrence.c.count.is_(None), 1))).label("uncounted"),
            )
            .select_from(joined)
            .group_by(chosen.c.op)
        )
    }
    pairs = select(chosen.c.op, occurrence.c.origin).select_from(joined).distinct().subquery()
    models: dict[str, set[str]] = {}
    for op, model in connection.execute(select(pairs.c.op, origin.c.model).join(origin, origin.c.id == pairs.c.origin)):
        models.setdefault(op, set()).update({model} - {""})
    for op in sorted(configurations):
        row = counts.get(op)
        yield OpSummary(
            op=op,
            configurations=configurations[op],
            calls=int(row.calls) if row is not None else 0,
            uncounted=row.uncounted if row is not None else 0,
            models=tuple(sorted(models.get(op, ()))),
        )


def read_info(connection: Connection) -> StoreInfo:
    """What the database holds, in numbers."""

    def number(statement: Select[Any]) -> int:
        return int(connection.execute(statement).scalar_one())

    return StoreInfo(
        configurations=number(select(func.count()).select_from(configuration)),
        operations=number(select(func.count(distinct(configuration.c.op)))),
        sources=number(select(func.count(distinct(origin.c.source)))),
        calls=number(select(func.coalesce(func.sum(occurrence.c.count), 0))),
        uncounted=number(select(func.count()).select_from(occurrence).where(occurrence.c.count.is_(None))),
        runs=number(select(func.count()).select_from(trace_run)),
    )


def read_models(connection: Connection) -> tuple[str, ...]:
    """The models that anything was seen in."""
    return tuple(connection.execute(select(origin.c.model).distinct().order_by(origin.c.model)).scalars())


def read_sources(connection: Connection) -> tuple[str, ...]:
    """The sources that anything was seen in."""
    return tuple(connection.execute(select(origin.c.source).distinct().order_by(origin.c.source)).scalars())


def read_runs(connection: Connection) -> Iterator[TraceRun]:
    """Every trace run, by source and run."""
    rows = connection.execute(select(trace_run.c.body).order_by(trace_run.c.source, trace_run.c.run))
    return map(run_of, rows.scalars())


def _occurrences(connection: Connection, numbers: Sequence[int]) -> dict[int, tuple[Occurrence, ...]]:
    query = (
        select(
            occurrence.c.configuration, occurrence.c.count.label("calls"),
            origin.c.source, origin.c.run, origin.c.model,
            place.c.phase, place.c.module_path, place.c.call_site, place.c.details,
        )
        .join(origin, origin.c.id == occurrence.c.origin)
        .join(place, place.c.id == occurrence.c.place)
        .where(occurrence.c.configuration.in_(numbers))
        .order_by(occurrence.c.configuration)
    )  # fmt: skip
    groups = groupby(connection.execute(query), key=itemgetter(0))
    return {number: counted_once(map(occurrence_of, rows)) for number, rows in groups}


def _conditions(query: Query) -> Iterator[ColumnElement[bool]]:
    columns = configuration.c
    if query.op is not None:
        yield columns.op == query.op
    if query.key is not None:
        yield columns.key.startswith(query.key, autoescape=True)
    if query.dtype is not None:
        yield columns.dtypes.contains(f",{query.dtype},", autoescape=True)
    if query.rank is not None:
        yield columns.ranks.contains(f",{query.rank},", autoescape=True)
    if query.model is not None:
        yield columns.id.in_(_seen_at(origin.c.model == query.model))
    if query.source is not None:
        yield columns.id.in_(_seen_at(origin.c.source == query.source))


def _seen_at(condition: ColumnElement[bool]) -> Select[Any]:
    return select(occurrence.c.configuration).join(origin, origin.c.id == occurrence.c.origin).where(condition)

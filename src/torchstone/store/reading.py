"""Rows -> SeenConfigurations, chosen by op, model, source, element type or rank."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Subquery, case, distinct, func, select, text

from torchstone.record.base import Record
from torchstone.record.config import Occurrence, OpSummary, SeenConfiguration, StoreInfo, TraceRun, counted_once
from torchstone.store.rows import occurrence_of, run_of, seen_of
from torchstone.store.tables import OPS_BY_ID, configuration, occurrence, origin, place, trace_run

_FIRST_PAGE = 100  # configurations read before the first is given: soon enough for somebody who waits
_PAGE = 1_000


class Query(Record, frozen=True, kw_only=True):
    """Which configurations are asked for; None: all."""

    op: str | None = None
    model: str | None = None
    models: tuple[str, ...] | None = None  # any of them
    source: str | None = None
    sources: tuple[str, ...] | None = None  # any of them
    dtype: str | None = None
    rank: int | None = None
    key: str | None = None  # the beginning of a key is enough


def read_configurations(connection: Connection, query: Query) -> Iterator[SeenConfiguration]:
    """The configurations that fit, by op and key."""
    columns = configuration.c
    statement = select(columns.id, columns.body, columns.knowledge).where(*_conditions(query))
    rows = connection.execute(statement.order_by(columns.op, columns.key))
    size = _FIRST_PAGE
    while page := rows.fetchmany(size):
        size = _PAGE
        places = _occurrences(connection, [row.id for row in page])
        for row in page:
            yield seen_of(row.body, row.knowledge, places.get(row.id, ()))


def read_operations(connection: Connection, query: Query) -> Iterator[OpSummary]:
    """Each op that fits, by name; calls and models are those of the places that were asked for."""
    conditions = list(_conditions(query))
    chosen = _chosen(connection, conditions)
    by_op = select(configuration.c.op, func.count().label("configurations")).where(*conditions)
    counted = by_op.group_by(configuration.c.op)
    configurations = {row.op: row.configurations for row in connection.execute(counted)}
    joined = chosen.join(occurrence, occurrence.c.configuration == chosen.c.id)
    summed = (
        select(
            chosen.c.op,
            occurrence.c.origin,
            func.coalesce(func.sum(occurrence.c.count), 0).label("calls"),
            func.count(case((occurrence.c.count.is_(None), 1))).label("uncounted"),
        )
        .select_from(joined)
        .group_by(chosen.c.op, occurrence.c.origin)
        .subquery()
    )
    places: dict[str, list[Any]] = {}
    rows = select(summed.c.op, summed.c.calls, summed.c.uncounted, origin.c.model).join(
        origin, origin.c.id == summed.c.origin
    )
    for row in connection.execute(rows.where(*_origin_conditions(query))):
        places.setdefault(row.op, []).append(row)
    for op in sorted(configurations):
        seen_at = places.get(op, [])
        yield OpSummary(
            op=op,
            configurations=configurations[op],
            calls=sum(int(row.calls) for row in seen_at),
            uncounted=sum(row.uncounted for row in seen_at),
            models=tuple(sorted({row.model for row in seen_at} - {""})),
        )


def _chosen(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> Subquery:
    """Number and op of the configurations that fit; of all, in the order of the occurrences, without the wide rows."""
    columns = configuration.c
    if conditions or connection.dialect.name != "sqlite":  # PostgreSQL finds the index itself
        return select(columns.id, columns.op).where(*conditions).subquery()
    narrow = text(f"SELECT id, op FROM configuration INDEXED BY {OPS_BY_ID}")  # noqa: S608 - our own names
    return narrow.columns(columns.id, columns.op).subquery()


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


def read_op_names(connection: Connection) -> tuple[str, ...]:
    """The ops that have configurations, by name: one step in the index for each op, however many calls it has."""
    column = configuration.c.op
    first = select(func.min(column).label("op")).cte("ops", recursive=True)
    after = select(func.min(column)).where(column > first.c.op).scalar_subquery()
    ops = first.union_all(select(after).where(first.c.op.is_not(None)))
    return tuple(connection.execute(select(ops.c.op).where(ops.c.op.is_not(None))).scalars())


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
    return {number: counted_once([*map(occurrence_of, rows)]) for number, rows in groups}


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
    for condition in _origin_conditions(query):
        yield columns.id.in_(_seen_at(condition))


def _origin_conditions(query: Query) -> Iterator[ColumnElement[bool]]:
    for column, one, several in (
        (origin.c.model, query.model, query.models),
        (origin.c.source, query.source, query.sources),
    ):
        if one is not None:
            yield column == one
        if several is not None:
            yield column.in_(several)


def _seen_at(condition: ColumnElement[bool]) -> Select[Any]:
    return select(occurrence.c.configuration).join(origin, origin.c.id == occurrence.c.origin).where(condition)

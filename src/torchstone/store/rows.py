"""Records <-> rows: add configurations to the database, and read them by op, model, source or dtype."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Insert,
    Subquery,
    Table,
    bindparam,
    case,
    distinct,
    func,
    insert,
    or_,
    select,
    text,
    update,
)

from torchstone.record.base import Record
from torchstone.record.chain import ARROW, is_chain
from torchstone.record.config import (
    Configuration,
    Damage,
    ForeignName,
    Occurrence,
    OpSummary,
    SeenConfiguration,
    StoreInfo,
    TensorFacts,
    TraceRun,
    counted_once,
    in_order,
    merged,
    tensors_of,
)
from torchstone.record.op import Phase
from torchstone.record.value import Entries
from torchstone.store.tables import OPS_BY_ID, configuration, occurrence, origin, place, trace_run

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

# --- Records <-> rows, and the digests that identify origins and places ---


T = TypeVar("T")
Row = dict[str, Any]  # column values by name, as an INSERT takes them

_encoder = msgspec.json.Encoder()
_configuration_decoder = msgspec.json.Decoder(Configuration)
_run_decoder = msgspec.json.Decoder(TraceRun)
_details_decoder = msgspec.json.Decoder(Entries)


class Knowledge(Record, frozen=True, kw_only=True):
    """Everything known about a configuration except its occurrences."""

    facts: tuple[TensorFacts, ...] = ()
    foreign: tuple[ForeignName, ...] = ()
    damage: tuple[Damage, ...] = ()
    refused: str = ""


_knowledge_decoder = msgspec.json.Decoder(Knowledge)


def decoded(decoder: msgspec.json.Decoder[T], text: object) -> T:
    """What a column of text has as JSON; in a damaged file it may have anything."""
    return decoder.decode(msgspec.convert(text, str))


def configuration_row(seen: SeenConfiguration, *, key: str, number: int) -> Row:
    """The row of a new configuration."""
    tensors = tensors_of(seen.configuration)
    return {
        "id": number,
        "key": key,
        "op": seen.configuration.op,
        "dtypes": joined_words({tensor.dtype for tensor in tensors}),
        "ranks": joined_words({str(len(tensor.shape)) for tensor in tensors if tensor.shape is not None}),
        "body": _encoder.encode(seen.configuration).decode(),
        "knowledge": knowledge_text(seen),
    }


def joined_words(words: set[str]) -> str:
    """Join words so that LIKE '%,word,%' finds each."""
    return f",{','.join(sorted(words))}," if words else ""


def knowledge_text(seen: SeenConfiguration) -> str | None:
    """The knowledge about a configuration as JSON; None where there is none."""
    if not (seen.facts or seen.foreign or seen.damage or seen.refused):
        return None
    known = Knowledge(facts=seen.facts, foreign=seen.foreign, damage=seen.damage, refused=seen.refused)
    return _encoder.encode(known).decode()


def seen_of(body: str, knowledge: str | None, occurrences: tuple[Occurrence, ...] = ()) -> SeenConfiguration:
    """The record of a row."""
    known = decoded(_knowledge_decoder, knowledge) if knowledge is not None else Knowledge()
    return SeenConfiguration(
        configuration=decoded(_configuration_decoder, body),
        occurrences=occurrences,
        facts=known.facts,
        foreign=known.foreign,
        damage=known.damage,
        refused=known.refused,
    )


def origin_of(one: Occurrence) -> tuple[str, str, str]:
    """The identity of an origin."""
    return one.source, one.run, one.model


def place_of(one: Occurrence) -> tuple[str | None, str, str, bytes]:
    """The identity of a place."""
    details = (
        b"" if one.details is None else _encoder.encode(one.details)
    )  # as text: 1 and True are equal, not the same
    return one.phase, one.module_path, one.call_site, details


def origin_row(one: Occurrence) -> Row:
    """Source, run and model of an occurrence."""
    columns = {"source": one.source, "run": one.run, "model": one.model}
    return {"digest": _digest(one.source, one.run, one.model), **columns}


def place_row(one: Occurrence) -> Row:
    """Where in its source an occurrence was seen."""
    details = None if one.details is None else _encoder.encode(one.details).decode()
    phase = None if one.phase is None else one.phase.value
    columns = {"phase": phase, "module_path": one.module_path, "call_site": one.call_site, "details": details}
    return {"digest": _digest(phase, one.module_path, one.call_site, details), **columns}


class _SeenPlace(Record, frozen=True, kw_only=True):
    """The columns of an occurrence with its origin and place; SQLite does not keep to their types in a damaged file."""

    source: str
    run: str
    model: str
    phase: Phase | None
    module_path: str
    call_site: str
    details: str | None
    calls: int | None


def occurrence_of(row: Any) -> Occurrence:
    """The record of a joined row; raises msgspec.ValidationError where it cannot have been written by this program."""
    found = msgspec.convert(row, _SeenPlace, from_attributes=True)
    return Occurrence(
        source=found.source,
        run=found.run,
        model=found.model,
        phase=found.phase,
        module_path=found.module_path,
        call_site=found.call_site,
        details=None if found.details is None else decoded(_details_decoder, found.details),
        count=found.calls,
    )


def run_row(run: TraceRun) -> Row:
    """The row of a trace run."""
    digest = _digest(run.source, run.run)
    return {"digest": digest, "source": run.source, "run": run.run, "body": _encoder.encode(run).decode()}


def run_of(body: str) -> TraceRun:
    """The trace run of a row."""
    return decoded(_run_decoder, body)


def _digest(*parts: str | None) -> str:
    return sha256(_encoder.encode(parts)).hexdigest()


# --- Adding configurations, merged with those in the database ---


K = TypeVar("K")

CHUNK = 5_000  # configurations per transaction: other writers get their turn in between


class Added(Record, frozen=True, kw_only=True):
    """How many of the added configurations were new."""

    new: int = 0  # configurations that were not known
    known: int = 0  # configurations that were

    def __add__(self, other: "Added") -> "Added":
        return Added(new=self.new + other.new, known=self.known + other.known)


def chunks_of(seen: Iterable[SeenConfiguration]) -> Iterator[dict[str, SeenConfiguration]]:
    """Configurations by key, CHUNK at a time, each once in its chunk."""
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
    """Merge new knowledge about known configurations into the database."""
    informative = {numbers[key]: one for key, one in seen.items() if knowledge_text(one) is not None}
    if not informative:
        return
    columns = configuration.c
    query = select(columns.id, columns.body, columns.knowledge).where(columns.id.in_(list(informative)))
    changed = []
    for number, body, knowledge in connection.execute(query):
        joined = knowledge_text(merged(seen_of(body, knowledge), informative[number]))
        if joined != knowledge:
            changed.append({"number": number, "joined": joined})
    if changed:
        change = update(configuration).where(columns.id == bindparam("number")).values(knowledge=bindparam("joined"))
        connection.execute(change, changed)


def _add_occurrences(connection: Connection, seen: Mapping[str, SeenConfiguration], numbers: Mapping[str, int]) -> None:
    found = [(numbers[key], one) for key, each in seen.items() for one in each.occurrences]
    if not found:
        return
    origins = _numbers_of(connection, origin, {origin_of(one): one for _, one in found}, origin_row)
    places = _numbers_of(connection, place, {place_of(one): one for _, one in found}, place_row)
    rows: dict[tuple[int, int, int], Row] = {}
    for number, one in found:
        at, where = origins[origin_of(one)], places[place_of(one)]
        rows[number, at, where] = {"configuration": number, "origin": at, "place": where, "count": one.count}
    connection.execute(_upsert_occurrences(connection), list(rows.values()))


def _numbers_of(
    connection: Connection, table: Table, occurrences: Mapping[K, Occurrence], row_of: Callable[[Occurrence], Row]
) -> dict[K, int]:
    """The row number of each occurrence's origin or place; missing rows are added."""
    rows = {key: row_of(one) for key, one in occurrences.items()}
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


def _upsert_occurrences(connection: Connection) -> Insert:
    """Insert occurrences; where one exists, the larger count wins, so that adding a run again changes nothing."""
    statement: sqlite.Insert | postgresql.Insert
    if connection.dialect.name == "postgresql":  # importing this dialect takes a third of the time of a whole answer
        from sqlalchemy.dialects.postgresql import insert as insert_postgresql

        statement = insert_postgresql(occurrence)
    else:
        from sqlalchemy.dialects.sqlite import insert as insert_sqlite

        statement = insert_sqlite(occurrence)
    given, kept = statement.excluded["count"], occurrence.c.count
    larger = case((or_(kept.is_(None), given > kept), given), else_=kept)
    return statement.on_conflict_do_update(index_elements=["configuration", "origin", "place"], set_={"count": larger})


# --- Reading configurations, filtered by op, model, source, dtype or rank ---

_IS_CHAIN = configuration.c.op.contains(ARROW, autoescape=True)
_FIRST_PAGE = 100  # small, so that the first results come soon
_PAGE = 1_000


class Query(Record, frozen=True, kw_only=True):
    """A filter of configurations; None matches all."""

    op: str | None = None
    model: str | None = None
    models: tuple[str, ...] | None = None  # any of them
    source: str | None = None
    sources: tuple[str, ...] | None = None  # any of them
    dtype: str | None = None
    rank: int | None = None
    key: str | None = None  # the beginning of a key is enough
    keys: tuple[str, ...] | None = None  # any of them, each whole
    chains: bool | None = False  # single calls; True: chains of calls that feed each other; None: both


def read_configurations(connection: Connection, query: Query) -> Iterator[SeenConfiguration]:
    """The configurations that match, by op and key."""
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
    """Each matching op, by name; calls and models are those of the matching places only."""
    conditions = list(_conditions(query))
    chosen = _matching(connection, conditions, is_plain=query == Query())
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
    places: dict[str, list[tuple[int, int, str]]] = {}  # calls, occurrences without a count, and model, by op
    rows = select(summed.c.op, summed.c.calls, summed.c.uncounted, origin.c.model).join(
        origin, origin.c.id == summed.c.origin
    )
    for op, calls, uncounted, model in connection.execute(rows.where(*_origin_conditions(query))):
        places.setdefault(op, []).append((int(calls), uncounted, model))
    for op in sorted(configurations):
        seen_at = places.get(op, [])
        yield OpSummary(
            op=op,
            configurations=configurations[op],
            calls=sum(calls for calls, _, _ in seen_at),
            uncounted=sum(uncounted for _, uncounted, _ in seen_at),
            models=tuple(sorted({model for _, _, model in seen_at} - {""})),
        )


def _matching(connection: Connection, conditions: Sequence[ColumnElement[bool]], *, is_plain: bool) -> Subquery:
    """Number and op of the matching configurations; of all single calls, from an index that avoids the wide rows."""
    columns = configuration.c
    if not is_plain or connection.dialect.name != "sqlite":  # PostgreSQL finds the index itself
        return select(columns.id, columns.op).where(*conditions).subquery()
    narrow = text(
        f"SELECT id, op FROM configuration INDEXED BY {OPS_BY_ID} WHERE instr(op, '{ARROW}') = 0"  # noqa: S608 - ours
    )
    return narrow.columns(columns.id, columns.op).subquery()


def read_info(connection: Connection) -> StoreInfo:
    """The size of the database: configurations, operations, sources and calls."""

    def number(statement: Executable) -> int:
        return int(connection.execute(statement).scalar_one())

    calls = select(func.coalesce(func.sum(occurrence.c.count), 0))
    uncounted = select(func.count()).select_from(occurrence).where(occurrence.c.count.is_(None))
    of_chains = occurrence.c.configuration.in_(select(configuration.c.id).where(_IS_CHAIN))
    chains = number(select(func.count()).select_from(configuration).where(_IS_CHAIN))
    return StoreInfo(
        configurations=number(select(func.count()).select_from(configuration)) - chains,
        operations=number(select(func.count(distinct(configuration.c.op))).where(~_IS_CHAIN)),
        sources=number(select(func.count(distinct(origin.c.source)))),
        calls=number(calls) - (number(calls.where(of_chains)) if chains else 0),
        uncounted=number(uncounted) - (number(uncounted.where(of_chains)) if chains else 0),
        runs=number(select(func.count()).select_from(trace_run)),
        chains=chains,
    )


def read_op_names(connection: Connection) -> tuple[str, ...]:
    """The ops that have configurations, by name.

    A recursive query takes one step in the index for each op; DISTINCT would read an entry for each configuration.
    """
    column = configuration.c.op
    first = select(func.min(column).label("op")).cte("ops", recursive=True)
    after = select(func.min(column)).where(column > first.c.op).scalar_subquery()
    ops = first.union_all(select(after).where(first.c.op.is_not(None)))
    names = connection.execute(select(ops.c.op).where(ops.c.op.is_not(None))).scalars().all()
    if not all(isinstance(name, str) for name in names):  # SQLite keeps any type in any column
        msg = "an op has a name that is not text"
        raise msgspec.ValidationError(msg)
    return tuple(name for name in names if not is_chain(name))


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
    if query.chains is not None and query.op is None:  # an op has a name that says which it is
        yield _IS_CHAIN if query.chains else ~_IS_CHAIN
    if query.op is not None:
        yield columns.op == query.op
    if query.key is not None:
        yield columns.key.startswith(query.key, autoescape=True)
    if query.keys is not None:
        yield columns.key.in_(query.keys)
    if query.dtype is not None:
        yield columns.dtypes.contains(f",{query.dtype},", autoescape=True)
    if query.rank is not None:
        yield columns.ranks.contains(f",{query.rank},", autoescape=True)
    seen_at = select(occurrence.c.configuration).join(origin, origin.c.id == occurrence.c.origin)
    for condition in _origin_conditions(query):
        yield columns.id.in_(seen_at.where(condition))


def _origin_conditions(query: Query) -> Iterator[ColumnElement[bool]]:
    for column, one, several in (
        (origin.c.model, query.model, query.models),
        (origin.c.source, query.source, query.sources),
    ):
        if one is not None:
            yield column == one
        if several is not None:
            yield column.in_(several)

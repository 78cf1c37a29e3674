"""Sweep runs <-> the database."""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, delete, insert, select

from torchstone.record.vector import Status, SweepRun, VectorResult
from torchstone.store.database import Store
from torchstone.store.engine import reading_from, writing_to
from torchstone.store.rows import decoded
from torchstone.store.tables import sweep_result, sweep_run

_CHUNK = 1_000
_run_decoder = msgspec.json.Decoder(SweepRun)
_result_decoder = msgspec.json.Decoder(VectorResult)


def add_sweep(store: Store, run: SweepRun) -> None:
    """Store a run and its results; an existing run is replaced by its newer state in one transaction."""
    head = replace(run, results=())
    with writing_to(store.engine) as connection:
        connection.execute(delete(sweep_result).where(sweep_result.c.run == run.run))
        connection.execute(delete(sweep_run).where(sweep_run.c.run == run.run))
        connection.execute(
            insert(sweep_run),
            {"run": run.run, "backend": run.backend, "started": run.started, "body": _text(head)},
        )
        rows = [_row(run.run, result) for result in run.results]
        for first in range(0, len(rows), _CHUNK):
            connection.execute(insert(sweep_result), rows[first : first + _CHUNK])


def sweep_runs(store: Store) -> tuple[SweepRun, ...]:
    """All runs, oldest first, without their results."""
    query = select(sweep_run.c.body).order_by(sweep_run.c.started, sweep_run.c.run)
    with reading_from(store.engine) as connection:
        return tuple(decoded(_run_decoder, body) for (body,) in connection.execute(query))


def read_sweep(store: Store, run: str) -> SweepRun | None:
    """One run with its results; None where there is none of that name."""
    with reading_from(store.engine) as connection:
        body = connection.execute(select(sweep_run.c.body).where(sweep_run.c.run == run)).scalar_one_or_none()
        if body is None:
            return None
        results = tuple(_results(connection, run))
        return replace(decoded(_run_decoder, body), results=results)


def passing_configurations(store: Store, backend: str) -> frozenset[str]:
    """The keys of the configurations whose newest result on a backend passed."""
    return frozenset(key for key, status in newest_statuses(store, backend).items() if status is Status.PASS)


def newest_statuses(store: Store, backend: str) -> dict[str, Status]:
    """The newest status on a backend of each configuration that was run there, by key."""
    query = (
        select(sweep_result.c.configuration, sweep_result.c.status)
        .join(sweep_run, sweep_run.c.run == sweep_result.c.run)
        .where(
            sweep_run.c.backend == backend,
            sweep_result.c.configuration.is_not(None),
            sweep_result.c.status != Status.NOT_RUN.value,
        )
        .order_by(sweep_run.c.started, sweep_run.c.run)
    )
    with reading_from(store.engine) as connection:
        found = msgspec.convert([tuple(row) for row in connection.execute(query)], list[tuple[str, Status]])
    return dict(found)


def _results(connection: Connection, run: str) -> Iterator[VectorResult]:
    query = select(sweep_result.c.body).where(sweep_result.c.run == run).order_by(sweep_result.c.vector)
    return (decoded(_result_decoder, body) for (body,) in connection.execute(query))


def _row(run: str, result: VectorResult) -> dict[str, str | None]:
    return {
        "run": run,
        "vector": result.id,
        "op": result.op,
        "configuration": result.configuration or None,
        "status": result.status.value,
        "outcome": result.outcome.value,
        "body": _text(result),
    }


def _text(record: SweepRun | VectorResult) -> str:
    return msgspec.json.encode(record).decode()

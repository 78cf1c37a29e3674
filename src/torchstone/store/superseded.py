"""Calls are counted once for each source: a newer trace of a test, script or file takes the place of the older ones."""

from collections.abc import Iterable

from sqlalchemy import Connection, and_, delete, exists, select

from torchstone.record.config import TraceFormat, TraceRun
from torchstone.store.rows import run_of
from torchstone.store.tables import configuration, occurrence, origin, trace_run

_MANY_SOURCES = frozenset(
    {
        TraceFormat.TTNN_MASTER_V0,
        TraceFormat.TTNN_MASTER_V1,
        TraceFormat.TTNN_MASTER_V1_5,
        TraceFormat.TTNN_MASTER_V2,
        TraceFormat.TTNN_MASTER_V2_DB,
    }
)  # the sources and runs of such a file stand at its executions
_AT_ONCE = 500  # values of one IN clause


def drop_superseded(connection: Connection, runs: Iterable[TraceRun], *, replaces: bool) -> None:
    """Remove older traces of the sources of these runs, also those that broke off while they were added.

    Of traces that torchstone made, the newest stays whichever was added last: their names begin with the time. A file
    that was read has no such order: with `replaces`, what was just added takes the place of earlier contents.
    """
    for run in {(one.source, one.format): one for one in runs}.values():
        for older in _older(connection, run, replaces=replaces):
            _remove(connection, run, older)


def _older(connection: Connection, added: TraceRun, *, replaces: bool) -> list[str]:
    rows = connection.execute(select(trace_run.c.body).where(trace_run.c.source == added.source)).scalars()
    complete = [run_of(row) for row in rows]
    known = {one.run for one in complete if one.format is added.format} | {added.run}
    origins = connection.execute(select(origin.c.run).where(origin.c.source == added.source)).scalars()
    broken_off = set(origins) - known - {one.run for one in complete}  # or of a writer that is not done
    if added.format is TraceFormat.TORCHSTONE:
        newest = max(known)
        return sorted((known - {newest}) | {run for run in broken_off if run < newest})
    return sorted((known | broken_off) - {added.run}) if replaces and added.format not in _MANY_SOURCES else []


def _remove(connection: Connection, newer: TraceRun, run: str) -> None:
    """Remove a trace, and the configurations that nothing else has seen."""
    same_run = origin.c.run == run
    if newer.format is not TraceFormat.TTNN_OPERATION_TRACE:  # its folder names each test, and its run no other folder
        same_run = and_(same_run, origin.c.source == newer.source)
    numbers = list(connection.execute(select(origin.c.id).where(same_run)).scalars())
    seen: list[int] = []
    for number in numbers:
        held = select(occurrence.c.configuration).where(occurrence.c.origin == number).distinct()
        seen.extend(connection.execute(held).scalars())
        connection.execute(delete(occurrence).where(occurrence.c.origin == number))
        connection.execute(delete(origin).where(origin.c.id == number))
    unseen = ~exists().where(occurrence.c.configuration == configuration.c.id)
    for first in range(0, len(seen), _AT_ONCE):
        some = seen[first : first + _AT_ONCE]
        connection.execute(delete(configuration).where(configuration.c.id.in_(some), unseen))
    connection.execute(delete(trace_run).where(trace_run.c.source == newer.source, trace_run.c.run == run))

"""A test, script or model -> every op it calls, in the database of configurations."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING
from uuid import uuid4

from torchstone.errors import InputError
from torchstone.record.config import OpLog, SourceEnding, TargetKind, TracedSource
from torchstone.record.config_summary import SourceSummary, TraceSummary, TtnnShare
from torchstone.workflows.database import database_address, open_store, with_database
from torchstone.workflows.model_source import ModelRequest
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.result_folder import writing_to

if TYPE_CHECKING:
    from torchstone.capture.op_log import Recording
    from torchstone.configs.exchange import Unread

_MOST_UNREAD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """A test, script or model to run, and the database for its calls."""

    model: ModelRequest  # its `model` may also be a pytest node or a script
    arguments: tuple[str, ...] = ()  # of a script
    kind: TargetKind | None = None  # None: from the name
    keep_failing: bool = False  # also the calls of tests and programs that failed
    samples: int = 8  # calls of each configuration whose values are inspected
    ttnn: bool = True  # record ttnn's operations where it is installed
    folder: Path | None = None  # for the raw trace; None: it is not kept
    database: str | None = None  # None: $TORCHSTONE_DB, or torchstone.db


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceResult:
    """The calls that were recorded, and where they are kept."""

    log: OpLog
    summary: TraceSummary
    raw_trace: Path | None  # where the raw trace was kept
    unread: "tuple[Unread, ...]"  # files of ttnn's tracer that could not be read

    @property
    def has_findings(self) -> bool:
        """Whether a target failed, a file was not read, or nothing was kept."""
        failed = any(source.ending is SourceEnding.FAILED for source in self.log.sources)
        return failed or bool(self.unread) or not any(source.kept for source in self.summary.sources)


def trace_ops(request: TraceRequest, progress: Progress = SILENT) -> TraceResult:
    """Run the target in a process of its own and add each distinct call of an op to the database.

    A target that fails is a result (`has_findings`). Raises InputError for a database that cannot be used, before
    anything runs where possible; a trace that cannot be added is kept as a file, which the error names.
    """
    database = database_address(request.database)
    if "://" in database or Path(database).is_file():
        open_store(database).close()  # a database that cannot be used is an error before anything runs
    with progress.step(f"tracing {request.model.model}"):
        log, unread = _traced(request)
    for note in log.notes:
        progress.note(f"note: {note}")
    kept = log.kept(keep_failing=request.keep_failing)
    new, name = _add(log, request)
    raw_trace = None if request.folder is None else _keep_raw(log, request.folder)
    if raw_trace is not None:
        progress.note(f"wrote {raw_trace}")
    return TraceResult(log=log, summary=_summary(log, kept, new, name), raw_trace=raw_trace, unread=unread)


def _traced(request: TraceRequest) -> "tuple[OpLog, tuple[Unread, ...]]":
    """The calls of the target, and the files of ttnn's tracer that could not be read."""
    from msgspec.structs import replace

    from torchstone.capture.trace_program import TraceRequest as ChildRequest
    from torchstone.capture.trace_program import kind_of, trace_in_child
    from torchstone.configs.ttnn_operations import with_ttnn_calls

    model = request.model
    kind = request.kind or kind_of(model.model, request.arguments)
    if kind is TargetKind.MODEL and request.arguments:
        first = request.arguments[0]
        msg = f"{model.model} is a model and takes no arguments ({first}); if it is a script, add --as script"
        raise InputError(msg)
    run = _new_run()
    with _ttnn_folder(request.folder, run) as ttnn:
        log = trace_in_child(
            ChildRequest(
                kind=kind,
                target=model.model,
                arguments=request.arguments,
                run=run,
                looks=request.samples,
                ttnn=str(ttnn.resolve()) if request.ttnn else "",
                inputs=model.inputs,
                options=asdict(model.options),
                backward=model.backward,
                command=model.command,
            )
        )
        log, unread = with_ttnn_calls(log, ttnn)
    return replace(log, notes=(*log.notes, *_unread_notes(unread))), unread


@contextmanager
def _ttnn_folder(kept: Path | None, run: str) -> Iterator[Path]:
    """Where ttnn's tracer writes: beside the raw trace where that is kept."""
    if kept is not None:
        yield kept / f"{run}.ttnn"
        return
    with TemporaryDirectory(prefix="torchstone-ttnn-") as folder:
        yield Path(folder) / run


def _unread_notes(unread: "tuple[Unread, ...]") -> Iterator[str]:
    if unread:
        some = ", ".join(f"{part.where}: {part.reason}" for part in unread[:_MOST_UNREAD])
        more = ", ..." if len(unread) > _MOST_UNREAD else ""
        yield f"{len(unread)} files of ttnn's tracer cannot be read, so their calls are missing: {some}{more}"


def _keep_raw(log: OpLog, folder: Path) -> Path:
    from torchstone.record.codec import save

    path = folder / f"{log.run}.json"
    with writing_to(path, "--store"):
        save(path, log)
    return path


def _add(log: OpLog, request: TraceRequest) -> tuple[int, str]:
    """Add the calls to the database: how many configurations it did not have, and its name."""
    from torchstone.configs.exchange import log_configurations
    from torchstone.store.engine import without_password

    address = database_address(request.database)
    counting = log_configurations(log, keep_failing=request.keep_failing)
    if not counting.runs:
        return 0, without_password(address)
    try:
        with open_store(address, create=True) as store:
            added = store.add(counting.seen, runs=counting.runs)
            store.supersede(counting.runs)
            return added.new, store.name
    except InputError as error:  # the target may have run for hours: keep its trace
        path = _keep_raw(log, request.folder or Path(gettempdir()))
        again = with_database(f"torchstone db import {path}", request.database)
        msg = f"{error}; the trace is kept, add it later with `{again}`"
        raise InputError(msg) from error


def add_recordings(
    recordings: "Mapping[str, Recording]", endings: Mapping[str, SourceEnding], database: str | None
) -> str:
    """Add what passing tests of this process called to the database; returns one line about it."""
    from torchstone.record.config import TraceRun

    run = _new_run()
    kept = {name: one for name, one in recordings.items() if endings.get(name) is SourceEnding.PASSED and one.calls}
    if not kept:
        return "torchstone: no passing test called an op, so nothing was recorded"
    seen = [one for name, recording in kept.items() for one in recording.records(source=name, run=run)]
    runs = [TraceRun(source=name, run=run) for name in kept]
    with open_store(database_address(database), create=True) as store:
        added = store.add(seen, runs=runs)
        store.supersede(runs)
        calls = sum(one.calls for one in kept.values())
        return f"torchstone: {calls:,} calls of {len(kept):,} tests, {added.new:,} new configurations in {store.name}"


def _new_run() -> str:
    """A name that sorts by time and that no other trace has."""
    return f"{datetime.now(tz=UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"


def _summary(log: OpLog, kept: tuple[TracedSource, ...], new: int, database: str) -> TraceSummary:
    seen = {one.configuration for source in kept for one in source.configurations}
    roles = Counter(log.roles[configuration.op] for configuration in seen)
    return TraceSummary(
        target=log.target,
        kind=log.kind.value,
        run=log.run,
        database=database,
        calls=sum(source.calls for source in kept),
        operations=len({configuration.op for configuration in seen}),
        configurations=len(seen),
        new=new,
        roles=dict(sorted(roles.items())),
        ttnn=_ttnn_share(kept) if "ttnn" in log.versions else None,
        sources=tuple(
            SourceSummary(
                name=source.name,
                ending=source.ending.value,
                kept=source in kept,
                calls=source.calls,
                configurations=len(source.configurations),
                detail=source.detail,
            )
            for source in log.sources
        ),
        notes=log.notes,
    )


def _ttnn_share(kept: tuple[TracedSource, ...]) -> TtnnShare:
    seen = [one for source in kept for one in source.configurations if one.configuration.op.startswith("ttnn.")]
    return TtnnShare(
        operations=len({one.configuration.op for one in seen}),
        configurations=len({one.configuration for one in seen}),
        calls=sum(one.calls for one in seen),
    )

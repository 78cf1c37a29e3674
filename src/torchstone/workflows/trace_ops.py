"""A test, script or model -> every op it calls, in the database of configurations."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from tempfile import gettempdir
from typing import TYPE_CHECKING
from uuid import uuid4

from torchstone.errors import InputError, require_package
from torchstone.record.config import OpLog, SourceEnding, TargetKind, TracedPeak, TracedSource
from torchstone.record.config_summary import SourceSummary, TraceSummary, TtnnShare
from torchstone.temporary import temporary_folder
from torchstone.units import many
from torchstone.workflows.database import database_address, open_store, with_database
from torchstone.workflows.model_source import ModelRequest
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.result_folder import writing_to

if TYPE_CHECKING:
    from torchstone.backends.ttnn.boards import Board
    from torchstone.capture.op_log import Recording
    from torchstone.configs.exchange import Unread
    from torchstone.record.memory import MemoryTimeline

_A_DAY_S = 86_400.0
_NO_LOCATION = "unknown"
_MOST_UNREAD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """A test, script or model to run, and the database for its calls."""

    model: ModelRequest  # its `model` may also be a pytest node or a script
    arguments: tuple[str, ...] = ()  # of a script
    kind: TargetKind | None = None  # None: from the name
    keep_failing: bool = False  # also the calls of tests and programs that failed
    samples: int = 8  # calls of each configuration whose values are inspected
    chains: bool = False  # also chains of 2 to 5 calls that feed each other
    ttnn: bool = True  # record ttnn's operations where it is installed
    folder: Path | None = None  # for the raw trace; None: it is not kept
    python: str = ""  # an environment with ttnn, to run a test or script of ttnn in; "": this one
    device: str = ""  # the board that the target finds there; "": n150
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
    kind = _kind(request)  # a missing file is an error before it is said to be executed
    if not request.python and not request.device:
        require_package("torch", needed_for="tracing")
    if ".py" in request.model.model:  # a script, a test, or a model file
        progress.note(f"executing {request.model.model.partition('::')[0]} ...")
    with progress.step(f"tracing {request.model.model}"):
        log, unread = _traced(request, kind)
    for note in log.notes:
        progress.note(f"note: {note}")
    new, name = _add(log, request)
    raw_trace = None if request.folder is None else _keep_raw(log, request.folder)
    if raw_trace is not None:
        progress.note(f"wrote {raw_trace}")
    return TraceResult(log=log, summary=_summary(log, request, new, name), raw_trace=raw_trace, unread=unread)


def _kind(request: TraceRequest) -> TargetKind:
    from torchstone.capture.trace_program import kind_of

    model = request.model.model
    kind = request.kind or kind_of(model, request.arguments)
    if kind is TargetKind.MODEL and request.arguments:
        first = request.arguments[0]
        msg = f"{model} is a model and takes no arguments ({first}); if it is a script, add --as script"
        raise InputError(msg)
    return kind


def _traced(request: TraceRequest, kind: TargetKind) -> "tuple[OpLog, tuple[Unread, ...]]":
    """The calls of the target, and the files of ttnn's tracer that could not be read."""
    from msgspec.structs import replace

    from torchstone.capture.trace_program import TraceRequest as ChildRequest
    from torchstone.capture.trace_program import trace_in_child
    from torchstone.configs.ttnn_operations import with_ttnn_calls

    model = request.model
    run = _new_run()
    if request.python or request.device:
        return _traced_on_board(request, kind, run)
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
                chains=request.chains,
                command=model.command,
            )
        )
        log, unread = with_ttnn_calls(log, ttnn)
    return replace(log, notes=(*log.notes, *_unread_notes(unread))), unread


# --- Real ttnn, in an environment of its own, on a mock board or on hardware ---


def _traced_on_board(request: TraceRequest, kind: TargetKind, run: str) -> "tuple[OpLog, tuple[Unread, ...]]":
    """Run a target in the environment that has ttnn: its calls, its lines of Python, and the memory of the board."""
    from msgspec.structs import replace

    from torchstone import __version__
    from torchstone.configs.ttnn_operations import with_ttnn_calls

    target = request.model.model
    if kind is TargetKind.MODEL:
        msg = f"{target} is a PyTorch model: `torchstone map {target}` calls its ops on a board; --python and --device "
        msg += "are for tests and scripts that call ttnn"
        raise InputError(msg)
    board, python, version = _board_and_environment(request)
    with _ttnn_folder(request.folder, run) as files:
        payload: dict[str, object] = {"kind": kind.value, "target": target, "run": run}
        payload["arguments"] = list(request.arguments)
        ended, notes = _run_on_board(payload, files, board, python)
        log = OpLog(
            target=target,
            kind=kind,
            run=run,
            created=datetime.now(tz=UTC).isoformat(timespec="seconds"),
            command=request.model.command,
            versions={"torchstone": __version__, "ttnn": version, "board": board.label},
            sources=ended,
            notes=tuple(filter(None, notes)),
        )
        log, unread = with_ttnn_calls(log, files)
        log = replace(log, sources=tuple(_with_peaks(source, files) for source in log.sources))
    return replace(log, notes=(*log.notes, *_unread_notes(unread))), unread


def _board_and_environment(request: TraceRequest) -> "tuple[Board, str, str]":
    """The board, the interpreter and the version of its ttnn; all that is wrong is said before anything runs."""
    from torchstone.backends.ttnn.boards import UnknownBoardError, find_board
    from torchstone.backends.ttnn.environment import describe_environment, interpreter_of

    try:
        board = find_board(request.device or "n150")
    except UnknownBoardError as error:
        raise InputError(str(error)) from error
    environment = describe_environment(interpreter_of(request.python))
    missing = [name for name, found in (("ttnn", environment.ttnn), ("torch", environment.torch)) if not found]
    if missing:
        msg = f"{environment.python} has no {' and no '.join(missing)}, which ttnn's tracer needs; "
        msg += "run `torchstone ttnn setup` without --no-torch, or name another environment with --python"
        raise InputError(msg)
    return board, environment.python, environment.ttnn


def _run_on_board(
    payload: "dict[str, object]", files: Path, board: "Board", python: str
) -> tuple[tuple[TracedSource, ...], list[str]]:
    """How each source ended, and what else there is to say."""
    from torchstone.backends.ttnn.boards import L1_SMALL_BYTES
    from torchstone.backends.ttnn.environment import kernel_cache
    from torchstone.backends.ttnn.tracer import RUNNING, statuses_in
    from torchstone.capture.trace_program import TTNN_CHILD
    from torchstone.record.task import Ending, Environment, Limits, Task
    from torchstone.workflows.executors import ExecutorRequest, opened_executor

    payload |= {"folder": str(Path.cwd()), "files": str(files.resolve()), "mesh": list(board.mesh)}
    payload |= {"l1_small_bytes": L1_SMALL_BYTES}
    environment = Environment(python=python, variables=board.variables(kernel_cache(python)))
    limits = Limits(deadline_s=_A_DAY_S, retries_timeout=False)
    with opened_executor(environment, limits, ExecutorRequest(jobs=1)) as executor:
        executor.submit(Task(id="trace", entry=TTNN_CHILD, payload=payload))
        (result,) = executor.results()
    if result.ending is Ending.ANSWERED and isinstance(result.answer, dict):
        if result.answer.get("refusal"):
            raise InputError(result.answer["refusal"])
        ends = [(one["name"], one["ending"], one["detail"]) for one in result.answer["sources"]]
        return _sources(ends), [result.answer["note"]]
    why = result.evidence.signal or result.evidence.error or result.ending.value
    note = f"the process ended with {why}: the calls before that are kept, the memory of the last test or script is not"
    ended = statuses_in(files) or {str(payload["target"]): RUNNING}
    died = f"its process ended with {why}"
    failed = SourceEnding.FAILED.value
    ends = [(name, failed, died) if ending == RUNNING else (name, ending, "") for name, ending in ended.items()]
    return _sources(ends), [note]


def _sources(ends: Iterable[tuple[str, str, str]]) -> tuple[TracedSource, ...]:
    return tuple(TracedSource(name=name, ending=SourceEnding(end), detail=detail) for name, end, detail in ends)


def _with_peaks(source: TracedSource, files: Path) -> TracedSource:
    """The source with the peaks of its reports; the highest where a source opened several devices."""
    from msgspec.structs import replace

    from torchstone.backends.ttnn.tracer import reports_of
    from torchstone.memory.ttnn_files import read_ttnn_file

    found: dict[str, TracedPeak] = {}
    for report in reports_of(files, source.name):
        for peak in _peaks(read_ttnn_file(report)):
            if peak.memory not in found or peak.bank_bytes > found[peak.memory].bank_bytes:
                found[peak.memory] = peak
    return replace(source, peaks=tuple(found.values()))


def _peaks(timeline: "MemoryTimeline") -> Iterator[TracedPeak]:
    """The peak of each memory; its line of Python is that of the call in which a program ran."""
    from torchstone.memory.study import Study
    from torchstone.memory.usage import find_peaks, plain_location

    rows = timeline.ops.calls.values()
    for peak in find_peaks(Study(timeline)):
        before = (timeline.calls[rows[at]] for at in range(peak.op, -1, -1) if rows[at] >= 0)
        call = next(before, None)
        sites = (plain_location(one.location) for one in (call, *before) if one is not None)
        yield TracedPeak(
            memory=peak.memory,
            bank_bytes=peak.state.allocated,
            capacity_bytes=peak.state.capacity if peak.state.capacity > 0 else None,
            operation="" if call is None else call.name,
            call_site=next((site for site in sites if site not in ("", _NO_LOCATION)), ""),
        )


@contextmanager
def _ttnn_folder(kept: Path | None, run: str) -> Iterator[Path]:
    """Where ttnn's tracer writes: beside the raw trace where that is kept."""
    if kept is not None:
        yield kept / f"{run}.ttnn"
        return
    with temporary_folder("ttnn") as folder:
        yield folder / run


def _unread_notes(unread: "tuple[Unread, ...]") -> Iterator[str]:
    if unread:
        some = ", ".join(f"{part.where}: {part.reason}" for part in unread[:_MOST_UNREAD])
        more = ", ..." if len(unread) > _MOST_UNREAD else ""
        yield f"{many(len(unread), 'file')} of ttnn's tracer cannot be read, so their calls are missing: {some}{more}"


def _keep_raw(log: OpLog, folder: Path) -> Path:
    from torchstone.record.codec import save

    path = folder / f"{log.run}.json"
    with writing_to(path, "--store"):
        save(path, log)
    return path


def _add(log: OpLog, request: TraceRequest) -> tuple[int, str]:
    """Add the calls to the database: how many configurations it did not have, and its name."""
    from torchstone.configs.exchange import log_configurations
    from torchstone.store import without_password

    address = database_address(request.database)
    counting = log_configurations(log, keep_failing=request.keep_failing)
    if not counting.runs:
        return 0, without_password(address)
    try:
        with open_store(address, create=True) as store:
            added = store.add(counting.seen, runs=counting.runs)
            return added.new, store.name
    except InputError as error:  # the target may have run for hours: keep its trace
        path = _keep_raw(log, request.folder or Path(gettempdir()))
        again = with_database(f"torchstone db import {quote(str(path))}", request.database)
        msg = f"{error}; the trace is kept, add it later with `{again}`"
        raise InputError(msg) from error


def add_recordings(recordings: "Mapping[str, Recording]", endings: Mapping[str, str], database: str | None) -> str:
    """Add what passing tests of this process called to the database; returns one line about it."""
    from torchstone.record.config import TraceRun

    run = _new_run()
    kept = {name: one for name, one in recordings.items() if endings.get(name) == SourceEnding.PASSED and one.calls}
    if not kept:
        return "torchstone: no passing test called an op, so nothing was recorded"
    seen = [one for name, recording in kept.items() for one in recording.records(source=name, run=run)]
    runs = [TraceRun(source=name, run=run) for name in kept]
    with open_store(database_address(database), create=True) as store:
        added = store.add(seen, runs=runs)
        calls = sum(one.calls for one in kept.values())
        return (
            f"torchstone: {many(calls, 'call')} of {many(len(kept), 'test')}, "
            f"{many(added.new, 'new configuration')} in {store.name}"
        )


def _new_run() -> str:
    """A name that sorts by time and that no other trace has."""
    return f"{datetime.now(tz=UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"


def _summary(log: OpLog, request: TraceRequest, new: int, database: str) -> TraceSummary:
    kept = log.kept(keep_failing=request.keep_failing)
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
        chains=len({one.configuration for source in kept for one in source.chains}) if request.chains else None,
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
                peaks=source.peaks,
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

"""ttnn without hardware: make its environment, look what it can open, judge traced configurations on boards."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.errors import InputError
from torchstone.record.check import UNJUDGED
from torchstone.record.ttnn_verdict import (
    Cause,
    ChangedOp,
    Difference,
    JudgedRun,
    Judgements,
    OpenedBoard,
    VersionDiff,
)
from torchstone.units import many
from torchstone.workflows.executors import ExecutorRequest, opened_executor
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.sweep_run import PlannedSweep, RunRequest, run_sweep

if TYPE_CHECKING:
    from torchstone.record.ttnn_verdict import TtnnEnvironment
    from torchstone.record.vector import SweepRun, Vector, VectorResult

_OPEN_S = 300.0  # the first board of an environment builds kernels, on a machine that may be busy
_PER_CHILD = 50  # calls that one process makes: few enough to lose little by an abort, enough to pay for its device
_TWO = 2
_ANOTHER_S = 120.0  # a first call builds its kernels


# --- Environment ---


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupRequest:
    """The environment to make."""

    folder: Path | None = None  # None: $TORCHSTONE_TTNN, or a folder of the user's cache
    python: str = "3.12"  # a version that ttnn has wheels for, or the path of an interpreter
    version: str = ""  # of ttnn; "": the one that torchstone was tested with
    with_torch: bool = True  # for tracing; judging and memory need none


def set_up_ttnn(request: SetupRequest, progress: Progress = SILENT) -> "TtnnEnvironment":
    """Make an environment with ttnn, or complete it. Raises InputError where a step fails, with what to do."""
    from torchstone.backends.ttnn.environment import default_folder, set_up

    folder = Path(os.path.expanduser(request.folder or default_folder())).absolute()  # noqa: PTH111 - it leaves an unknown user as it is
    return set_up(
        folder, python=request.python, version=request.version, with_torch=request.with_torch, say=progress.note
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """An environment with ttnn, and the boards that it opens."""

    environment: "TtnnEnvironment"
    boards: tuple[OpenedBoard, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether ttnn is there and every board could be opened."""
        return bool(self.environment.ttnn) and all(board.opened for board in self.boards)


def diagnose_ttnn(python: str = "", devices: Sequence[str] = (), progress: Progress = SILENT) -> Diagnosis:
    """Describe an environment and open boards in it, each in a process of its own; all known boards by default."""
    from torchstone.backends.ttnn.boards import BOARDS, HARDWARE, UnknownBoardError, find_board
    from torchstone.backends.ttnn.environment import describe_environment, interpreter_of

    environment = describe_environment(interpreter_of(python))
    names = list(devices) or [*BOARDS, *([HARDWARE] if environment.devices else [])]
    try:
        boards = [find_board(name) for name in names]
    except UnknownBoardError as error:
        raise InputError(str(error)) from error
    opened: list[OpenedBoard] = []
    if environment.ttnn and environment.compiler != "none":
        for board in boards:
            with progress.step(f"opening {board.label}"):
                opened.append(_opened(environment.python, board.name if board.name in BOARDS else names[len(opened)]))
    return Diagnosis(environment=environment, boards=tuple(opened))


def _opened(python: str, name: str) -> OpenedBoard:
    import msgspec

    from torchstone.backends.ttnn.boards import find_board
    from torchstone.record.task import Ending, Limits, Task
    from torchstone.sweep.run import ttnn_environment

    board = find_board(name)
    environment = ttnn_environment(board, python=python)
    with opened_executor(environment, Limits(deadline_s=_OPEN_S), ExecutorRequest(jobs=1)) as executor:
        executor.submit(Task(id=name, entry="torchstone.backends.ttnn.device:describe_device"))
        (result,) = executor.results()
    if result.ending is not Ending.ANSWERED or result.answer is None:
        error = result.evidence.error or result.ending.value
        return OpenedBoard(name=board.label, mock=board.is_mock, opened=False, error=error)
    about = {"name": board.label, "mock": board.is_mock, "opened": True, "elapsed_s": result.elapsed_s}
    return msgspec.convert({**result.answer, **about}, OpenedBoard)


# --- Judging traced configurations ---


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """Which configurations to judge, on which boards, in which environments."""

    paths: tuple[Path, ...]  # master files, traces, reports: whatever `torchstone db import` reads
    devices: tuple[str, ...] = ()  # (): the board that each was traced on
    pythons: tuple[str, ...] = ()  # environments with ttnn; (): the one that `torchstone ttnn setup` makes
    folder: Path = Path("sweep")
    jobs: int = 2
    timeout_s: float | None = None
    command: str = ""


def judge_configurations(request: JudgeRequest, progress: Progress = SILENT) -> Judgements:
    """Judge every configuration of the files on each board and in each environment; results are kept in the folder.

    Raises InputError for a file that cannot be read, an unknown board, and an environment without ttnn.
    """
    from torchstone.backends.ttnn.boards import AUTO

    vectors, unread = _vectors(request.paths)
    done: list[tuple[str, SweepRun]] = []
    for python in request.pythons or ("",):
        for device in request.devices or (AUTO,):
            wanted = RunRequest(
                folder=request.folder,
                backend="ttnn",
                backend_options={"device": device},
                python=python,
                timeout_s=request.timeout_s or _ANOTHER_S,
                executor=ExecutorRequest(jobs=request.jobs, tasks_per_child=_PER_CHILD),
                command=request.command,
            )
            with progress.step(f"judging {many(len(vectors), 'configuration')} on {device}"):
                run = run_sweep(wanted, progress, plan=PlannedSweep(vectors=vectors))
            title = f"{'the board of each trace' if device == AUTO else device}, {run.backend_version}"
            if title in dict(done):
                title = f"{title} ({python or 'default'})"
            done.append((title, run))
    return Judgements(
        runs=tuple(_summary(title, run) for title, run in done),
        differences={title: _differences(done[0][1], run) for title, run in done[1:]},
        unread=unread,
        folder=str(request.folder),
    )


def _vectors(paths: Sequence[Path]) -> "tuple[tuple[Vector, ...], int]":
    from torchstone.backends.ttnn.recipes import is_ttnn
    from torchstone.configs.import_file import import_path
    from torchstone.sweep.vectors import vector_of

    found: dict[str, Vector] = {}
    unread = 0
    for path in paths:
        imported = import_path(path)
        unread += len(imported.unread)
        for seen in imported.seen:
            if is_ttnn(seen.configuration.op):
                found.setdefault(seen.key, vector_of(seen))
    if not found:
        msg = f"{', '.join(map(str, paths))}: there is no configuration of a ttnn op in it"
        raise InputError(msg)
    return tuple(found.values()), unread


def _summary(title: str, run: "SweepRun") -> JudgedRun:
    groups: dict[tuple[str, str], list[VectorResult]] = {}
    for result in run.results:
        if result.outcome.value != "accepted":
            groups.setdefault((result.outcome.value, _cause(result)), []).append(result)
    causes = [
        Cause(
            outcome=outcome,
            cause=cause,
            ops=tuple(sorted({one.op for one in group})),
            configurations=len(group),
            calls=sum(one.calls for one in group),
            approximate=sum(map(_is_approximate, group)),
            example=group[0].id,
            place=str((group[0].verdict or {}).get("place") or ""),
        )
        for (outcome, cause), group in groups.items()
    ]
    return JudgedRun(
        title=title,
        run=run.run,
        configurations=len(run.results),
        outcomes=run.outcomes,
        approximate=sum(map(_is_approximate, run.results)),
        causes=tuple(sorted(causes, key=lambda one: (-one.configurations, one.cause))),
        elapsed_s=run.elapsed_s,
    )


def _cause(result: "VectorResult") -> str:
    return str((result.verdict or {}).get("cause") or "") or result.detail or result.outcome.value


def _is_approximate(result: "VectorResult") -> bool:
    return bool((result.verdict or {}).get("lost"))


def _has_verdict(result: "VectorResult") -> bool:
    """Whether ttnn, or the lack of an op or argument in it, decided; the kernel cache and a busy machine do not."""
    return result.outcome not in UNJUDGED or result.verdict is not None


def _differences(first: "SweepRun", second: "SweepRun") -> tuple[Difference, ...]:
    before = {result.id: result for result in first.results}
    found = []
    for after in second.results:
        old = before.get(after.id)
        if old is None or old.outcome is after.outcome or not (_has_verdict(old) and _has_verdict(after)):
            continue
        worse = old if after.outcome.value == "accepted" else after
        outcomes = {"before": old.outcome.value, "after": after.outcome.value}
        found.append(Difference(id=after.id, op=after.op, **outcomes, cause=_cause(worse)))
    return tuple(sorted(found, key=lambda one: (one.cause, one.op, one.id)))


# --- Two versions of ttnn ---


def compare_versions(request: JudgeRequest, progress: Progress = SILENT) -> VersionDiff:
    """The ops and signatures that differ between two environments, and the verdicts on configurations where given.

    Raises InputError for other than two environments, and for one without ttnn.
    """
    from torchstone.backends.ttnn.environment import describe_environment, interpreter_of

    if len(request.pythons) != _TWO:
        msg = "two environments are compared: give --python twice; `torchstone ttnn setup --ttnn VERSION` makes another"
        raise InputError(msg)
    environments = [describe_environment(interpreter_of(place)) for place in request.pythons]
    for one in environments:
        if not one.ttnn:
            msg = f"{one.python} has no ttnn; run `torchstone ttnn setup`, or name another environment"
            raise InputError(msg)
    with progress.step("reading signatures"):
        before, after = (_signatures(one.python) for one in environments)
    changed = [found for op in sorted(before.keys() & after.keys()) if (found := _change(op, before[op], after[op]))]
    return VersionDiff(
        before=f"ttnn {environments[0].ttnn}",
        after=f"ttnn {environments[1].ttnn}",
        ops=len(before.keys() & after.keys()),
        removed=tuple(sorted(before.keys() - after.keys())),
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(changed),
        judgements=judge_configurations(request, progress) if request.paths else None,
    )


def _signatures(python: str) -> dict[str, list[str]]:
    from torchstone.backends.ttnn.environment import kernel_cache
    from torchstone.record.task import Ending, Environment, Limits, Task

    variables = {"TT_LOGGER_LEVEL": "off", "LOGURU_LEVEL": "ERROR", "TT_METAL_CACHE": kernel_cache(python)}
    with opened_executor(
        Environment(python=python, variables=variables), Limits(deadline_s=_OPEN_S), ExecutorRequest(jobs=1)
    ) as executor:
        executor.submit(Task(id="signatures", entry="torchstone.backends.ttnn.signatures:all_signatures"))
        (result,) = executor.results()
    if result.ending is not Ending.ANSWERED or not isinstance(result.answer, dict):
        msg = f"{python} could not list the ops of its ttnn: {result.evidence.error or result.ending.value}"
        raise InputError(msg)
    return result.answer


def _change(op: str, before: list[str], after: list[str]) -> ChangedOp | None:
    if before == after:
        return None
    old, new = ([_arguments(line) for line in lines] for lines in (before, after))
    known = {name for one in new for name in one}
    always = set.intersection(*({name for name, required in one.items() if required} for one in new)) if new else set()
    always_before = (
        set.intersection(*({name for name, required in one.items() if required} for one in old)) if old else set()
    )
    return ChangedOp(
        op=op,
        removed=tuple(line for line in before if line not in after),
        added=tuple(line for line in after if line not in before),
        lost_arguments=tuple(sorted({name for one in old for name in one} - known)) if new else (),
        now_required=tuple(sorted(always - always_before)) if old else (),
    )


def _arguments(line: str) -> dict[str, bool]:
    """The names of a signature, and whether each must be given."""
    from torchstone.backends.ttnn.signatures import parameters_of_line

    return {one.name: one.required for one in parameters_of_line(line, "(")}

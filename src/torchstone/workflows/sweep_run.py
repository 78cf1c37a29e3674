"""Vectors of a sweep folder x a backend -> results on disk as they come, and the whole run at the end."""

import os
import platform
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.errors import InputError, WorkerError, unknown_name
from torchstone.workflows.database import database_variable, existing_database, open_store, with_database
from torchstone.workflows.executors import ExecutorRequest, opened_executor
from torchstone.workflows.model_source import name_targets
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.result_folder import writing_to
from torchstone.workflows.sweep_generate import DEFAULT_FOLDER, GenerateRequest, generate_vectors

if TYPE_CHECKING:
    from torchstone.record.task import BackendFacts, Environment, Limits
    from torchstone.record.vector import SweepPlan, SweepRun, SweepSettings, Vector, VectorResult
    from torchstone.sweep.folder import RunFolder
    from torchstone.sweep.run import Canary, Runner
    from torchstone.workers.executor import Executor

DEFAULT_TIMEOUT_S = 30.0
_CANARY_S = 120.0  # on a busy machine a working device may take this long
_GIT_S = 10.0
_FEWEST_AHEAD = 64  # vectors submitted ahead, so that no process waits

OnResult = Callable[["VectorResult"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Which vectors to run, on which backend, and how to judge them."""

    folder: Path = DEFAULT_FOLDER
    backend: str = "eager"
    backend_options: Mapping[str, object] = field(default_factory=dict)
    python: str = ""  # the interpreter of the backend's environment; "": this one
    modules: tuple[str, ...] = ()  # ops or sweep modules, or the beginning of their dotted names; (): all
    suites: tuple[str, ...] = ()  # (): all
    vector_id: str = ""  # the beginning of one vector's id
    resume: bool = False  # resume the latest interrupted run: what to run and how is that run's; without one, start
    timeout_s: float | None = None  # None: the vector's own, or 30 s
    memory_limit: str | None = None  # such as 2GiB; None: a fair share of what is free
    retries: int = 1  # after a crash or a hang
    retry_all: bool = False  # after any failure, to find flaky vectors
    perf: bool = False  # measure the time of each vector
    perf_runs: int = 20  # samples of each round
    perf_rounds: int = 5  # processes in which each vector is timed, one round after the other
    profile: str = "default"  # what a correct implementation may do: exact, default, tt, ...
    pcc: float | None = None  # minimum PCC to pass; None, here and below: the noise of the profile decides
    rtol: float | None = None
    atol: float | None = None
    backward: bool = False  # judge gradients, too
    strict_stride: bool = False  # the strides of outputs must be equal, too
    reset_command: str = ""  # resets the device when it stops responding; "": none
    executor: ExecutorRequest = field(default_factory=lambda: ExecutorRequest(jobs=2, tasks_per_child=64))
    database: str | None = None  # keeps the run; None: $TORCHSTONE_DB or torchstone.db where it exists
    command: str = ""  # the command line, for provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSweep:
    """The vectors that a request would run now."""

    vectors: "tuple[Vector, ...]"
    interrupted: "RunFolder | None" = None  # the run that is resumed

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to run, and no run to finish."""
        return not self.vectors and self.interrupted is None


def sweep(generate: GenerateRequest, run: RunRequest, progress: Progress = SILENT) -> "SweepRun":
    """Generate vectors and run them.

    Raises InputError where the two requests name different folders, and as `generate_vectors` and `run_sweep` do.
    """
    if generate.folder != run.folder:
        msg = f"the vectors are generated in {generate.folder} and run in {run.folder}: give the same folder"
        raise InputError(msg)
    generate_vectors(generate, progress)
    return run_sweep(run, progress)


def plan_sweep(request: RunRequest) -> PlannedSweep:
    """Select the vectors of a request, without running them.

    A request to resume takes the latest interrupted run. Where there is none, the run was killed before its plan was
    written, or never started: then it starts, so that a loop which retries needs no other command. Raises InputError
    for an unknown module or suite.
    """
    interrupted = _interrupted(request.folder) if request.resume else None
    return interrupted or PlannedSweep(vectors=tuple(_selected(request)))


def run_sweep(
    request: RunRequest,
    progress: Progress = SILENT,
    *,
    plan: PlannedSweep | None = None,
    on_result: OnResult | None = None,
) -> "SweepRun":
    """Run the vectors of a request, or those of a plan made from it, and return the finished run.

    Every result is on disk before `on_result` receives it, and a run that is interrupted can be resumed with
    `resume=True` until the database has it, too. Raises InputError where there is nothing to run, the backend cannot
    run here, or the folder or database cannot be written. A vector that fails, hangs or crashes is a result.
    """
    plan = plan or plan_sweep(request)
    if plan.is_empty:
        msg = f"there is nothing to run in {request.folder}; `torchstone sweep generate` makes vectors"
        raise InputError(msg)
    code = dict.fromkeys(vector.path for vector in plan.vectors if vector.path)
    name_targets(progress, request.backend, *code, needed_for=_needs_torch(request, plan))
    run_folder = plan.interrupted or _begin(request, plan.vectors)
    start = time.perf_counter()
    notes: list[str] = []
    with _resumable(run_folder, request, progress, is_new=plan.interrupted is None):
        with run_folder.journal() as journal:
            if run_folder.is_finished:  # by another process that resumed it, too
                return run_folder.run()
            vectors = tuple(vector for vector in plan.vectors if vector.id not in journal)
            for result in _results(run_folder.plan(), vectors, request, notes):
                journal.keep(result.id, result)
                if on_result is not None:
                    on_result(result)
        whole = run_folder.gathered(finished=True, notes=tuple(notes), elapsed_s=time.perf_counter() - start)
        whole = _with_quarantine(whole, run_folder.path.parents[1])
        _keep_in_database(whole, request, progress)
        run_folder.finish(whole)
    return whole


def _needs_torch(request: RunRequest, plan: PlannedSweep) -> str:
    """What needs torch in this environment; "" where another one runs the vectors."""
    elsewhere = request.python or request.backend == "ttnn" or plan.interrupted is not None
    return "" if elsewhere else "a sweep"


def open_for_vectors(backend: str, *, timeout_s: float) -> "tuple[SweepPlan, AbstractContextManager[Executor]]":
    """A backend for vectors that are run one at a time, and the settings they run with.

    Raises InputError where the backend cannot run here.
    """
    from torchstone.record.task import Limits
    from torchstone.record.vector import SweepPlan, SweepRun
    from torchstone.sweep.run import backend_environment

    request = RunRequest(backend=backend, timeout_s=timeout_s)
    facts = _usable_backend(request)
    settings = _settings(request, forks=facts.forks)
    plan = SweepPlan(run=SweepRun(run="", backend=backend, backend_version=facts.version), settings=settings)
    environment = backend_environment(backend, {}, forks=facts.forks)
    one_job = ExecutorRequest(jobs=1, tasks_per_child=64)
    return plan, opened_executor(environment, Limits(deadline_s=timeout_s), one_job)


def has_failed(run: "SweepRun") -> bool:
    """Whether a run found something: a vector that failed, a run that was given up or is not finished."""
    from torchstone.record.vector import FAILED

    failed = any(result.status in FAILED and not result.quarantined for result in run.results)
    return not run.finished or bool(run.notes) or failed


def _with_quarantine(run: "SweepRun", folder: Path) -> "SweepRun":
    """The run with known failures marked, which do not fail it."""
    from msgspec.structs import replace

    from torchstone.sweep.folder import read_quarantine
    from torchstone.sweep.history import quarantined

    return replace(run, results=tuple(quarantined(run.results, read_quarantine(folder), run.backend)))


def _selected(request: RunRequest) -> "list[Vector]":
    from torchstone.sweep.folder import read_vectors, select

    files = read_vectors(request.folder)
    for name in request.modules:
        if not select(files, modules=[name]):
            raise unknown_name("module", name, [file.module for file in files], str(request.folder))
    for suite in request.suites:
        if not select(files, modules=request.modules, suites=[suite]):
            known = sorted({vector.suite for file in files for vector in file.vectors})
            raise unknown_name("suite", suite, known, str(request.folder))
    return select(files, modules=request.modules, suites=request.suites, vector_id=request.vector_id)


def _interrupted(folder: Path) -> PlannedSweep | None:
    """The latest interrupted run, and the vectors that it did not come to; None where no run was interrupted."""
    from torchstone.sweep.folder import unfinished

    run = next(unfinished(folder), None)
    if run is None:
        return None
    done = run.results()
    return PlannedSweep(
        vectors=tuple(vector for vector in run.plan().vectors if vector.id not in done), interrupted=run
    )


def _begin(request: RunRequest, vectors: "tuple[Vector, ...]") -> "RunFolder":
    """Make sure that the backend runs and the database can be written to, and write the plan."""
    from torchstone.record.vector import SweepPlan, SweepRun
    from torchstone.sweep.folder import new_run, new_run_name

    options = dict(request.backend_options)
    if request.backend == "ttnn":
        from dataclasses import replace

        from torchstone.backends.ttnn.environment import interpreter_of

        request = replace(request, python=interpreter_of(request.python))
    facts = _usable_backend(request)
    settings = _settings(request, forks=facts.forks)
    _limits(settings)
    address = existing_database(request.database)
    if address is not None:
        open_store(address, create=True).close()
    run = SweepRun(
        run=new_run_name(),
        backend=request.backend,
        options=options,
        python=request.python,
        backend_version=facts.version,
        started=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        commit=_git("GITHUB_SHA", "rev-parse", "HEAD"),
        branch=_git("GITHUB_REF_NAME", "rev-parse", "--abbrev-ref", "HEAD"),
        environment={"host": platform.node(), "python": platform.python_version()},
        profile=settings.profile,
        tolerance=settings.tolerance,
        command=request.command,
        selected=len(vectors),
    )
    with writing_to(request.folder):
        return new_run(request.folder, SweepPlan(run=run, vectors=vectors, settings=settings))


def _usable_backend(request: RunRequest) -> "BackendFacts":
    from torchstone.backends.registry import describe

    facts = describe(request.backend, options=dict(request.backend_options), python=request.python or None)
    if not facts.usable:
        needs = f"; {facts.needs}" if facts.needs else ""
        msg = f"backend {request.backend} cannot run here: {facts.reason}{needs}"
        raise InputError(msg)
    if request.backward and not facts.gradients:
        msg = f"backend {request.backend} gives no gradients that --backward could judge; aot_eager and inductor do"
        raise InputError(msg)
    return facts


def _git(variable: str, *command: str) -> str:
    """What CI says in a variable, or git of the current folder; "" where neither knows."""
    if os.environ.get(variable):
        return os.environ[variable]
    try:
        done = subprocess.run(  # noqa: S603 - no text of a user
            ["git", *command],  # noqa: S607 - the user's git
            capture_output=True,
            text=True,
            check=False,
            timeout=_GIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _settings(request: RunRequest, *, forks: bool) -> "SweepSettings":
    from torchstone.record.vector import SweepSettings

    return SweepSettings(
        timeout=request.timeout_s,
        memory_limit=request.memory_limit,
        retries=request.retries,
        retry_all=request.retry_all,
        perf=request.perf,
        perf_runs=request.perf_runs,
        perf_rounds=request.perf_rounds,
        profile=request.profile,
        pcc=request.pcc,
        rtol=request.rtol,
        atol=request.atol,
        strict_stride=request.strict_stride,
        backward=request.backward,
        reset_command=request.reset_command,
        forks=forks,
    )


@contextmanager
def _resumable(run_folder: "RunFolder", request: RunRequest, progress: Progress, *, is_new: bool) -> Iterator[None]:
    """Add the command that resumes the run to whatever interrupts it: all results so far are on disk.

    A new run whose environment cannot start has none, and would not start when it is resumed either: it is removed.
    """
    folder = shlex.quote(str(run_folder.path.parents[1]))
    resume = with_database(f"torchstone sweep run --dir {folder} --resume", request.database)
    try:
        yield
    except KeyboardInterrupt:
        progress.note(f"\nall results so far are kept; resume with: {resume}")
        raise
    except OSError as error:
        msg = f"cannot write to {run_folder.path}: {error.strerror or error}; resume later with `{resume}`"
        raise InputError(msg) from error
    except InputError as error:
        if is_new and isinstance(error, WorkerError) and not run_folder.results():
            run_folder.discard()
            raise
        msg = f"{error}; resume later with `{resume}`"
        raise InputError(msg) from error


def _keep_in_database(run: "SweepRun", request: RunRequest, progress: Progress) -> None:
    from torchstone.store.sweeps import add_sweep

    address = existing_database(request.database)
    if address is None:
        return
    with open_store(address, create=True) as store:
        add_sweep(store, run)
        progress.note(f"kept in {store.name}")


def _results(
    plan: "SweepPlan", vectors: "tuple[Vector, ...]", request: RunRequest, notes: list[str]
) -> "Iterator[VectorResult]":
    """How each vector ended; `notes` gets the reason where a backend had to be given up."""
    from msgspec.structs import replace

    from torchstone.sweep.run import TTNN, Runner, RunPolicy, extra_of, not_run

    settings, executor = plan.settings, request.executor
    limits = _limits(settings)
    extra = extra_of(plan.run, settings)
    policy = RunPolicy(
        extra=extra,
        timeout_s=settings.timeout,
        memory_bytes=limits.memory_bytes,
        retries=settings.retries,
        retry_all=settings.retry_all,
        probes=plan.run.backend not in ("eager", TTNN),
        window=max(_FEWEST_AHEAD, 4 * executor.jobs * executor.tasks_per_child),
    )
    for group in _groups(plan, vectors, database_variable(request.database)):
        if group.environment is None:
            yield from (not_run(vector, vector.reason or group.reason) for vector in group.vectors)
            continue
        canary = _canary(settings, limits, extra | group.extra, plan.run.backend) if group.is_of_ops else None
        with opened_executor(group.environment, limits, executor) as opened:
            runner = Runner(opened, replace(policy, extra=extra | group.extra), canary)
            yield from _with_rounds(runner, group.vectors, opened, settings, extra | group.extra)
        if runner.aborted:
            notes.append(runner.aborted)


def _with_rounds(
    runner: "Runner", group: "list[Vector]", opened: "Executor", settings: "SweepSettings", extra: dict[str, object]
) -> "Iterator[VectorResult]":
    """The results, and for a run that measures times the rounds after the first; a later result replaces its first."""
    from torchstone.sweep.run import timed_again

    timed: dict[str, VectorResult] = {}
    for result in runner.results(group):
        yield result
        if settings.perf and result.timing is not None:
            timed[result.id] = result
    vectors = [vector for vector in group if vector.id in timed]
    for _ in range(settings.perf_rounds - 1 if not runner.aborted else 0):
        for result in timed_again(opened, vectors, timed, extra):
            timed[result.id] = result
    if settings.perf and settings.perf_rounds > 1:
        yield from timed.values()


def _canary(settings: "SweepSettings", limits: "Limits", extra: dict[str, object], backend: str) -> "Canary":
    from torchstone.sweep.run import OP_ENTRY, TTNN, TTNN_CALL, TTNN_ENTRY, Canary

    patience_s = max(_CANARY_S, 2 * limits.deadline_s)
    reset = tuple(shlex.split(settings.reset_command))
    entry, call = (TTNN_ENTRY, TTNN_CALL) if backend == TTNN else (OP_ENTRY, None)
    return Canary(entry=entry, extra=extra, deadline_s=patience_s, reset_command=reset, call=call)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Vectors that share an environment, or a reason why they cannot run."""

    vectors: "list[Vector]"
    environment: "Environment | None" = None
    extra: dict[str, object] = field(default_factory=dict)  # for the payload of each
    reason: str = ""

    @property
    def is_of_ops(self) -> bool:
        """Whether its vectors are calls of ops, not those of a sweep module."""
        return self.vectors[0].configuration is not None


def _groups(plan: "SweepPlan", vectors: "tuple[Vector, ...]", variables: dict[str, str]) -> Iterator[_Group]:
    """Vectors that share an environment: those of ops, and those of each sweep module, which may read the database."""
    from torchstone.sweep.run import TTNN, backend_environment, module_environment
    from torchstone.sweep.vectors import TTNN_ROLE

    run = plan.run
    ops = [vector for vector in vectors if vector.configuration is not None and vector.role != TTNN_ROLE]
    calls = [vector for vector in vectors if vector.configuration is not None and vector.role == TTNN_ROLE]
    if run.backend == TTNN:
        yield from _by_board(calls, run)
        if ops:
            reason = "not an op of ttnn: `torchstone map` shows the ttnn calls that PyTorch ops become"
            yield _Group(vectors=ops, reason=reason)
    else:
        if calls:
            yield _Group(vectors=calls, reason="an op of ttnn: run it with --backend ttnn")
        if ops:
            environment = backend_environment(run.backend, run.options, python=run.python, forks=plan.settings.forks)
            yield _Group(vectors=ops, environment=environment)
    modules: dict[str, list[Vector]] = {}
    for vector in vectors:
        if vector.configuration is None:
            modules.setdefault(vector.path, []).append(vector)
    for path, group in modules.items():
        if not path:  # from a file of tt-metal, without its module
            yield _Group(vectors=group, reason="its sweep module is not here")
            continue
        yield _Group(vectors=group, environment=module_environment(Path(path), python=run.python, variables=variables))


def _by_board(vectors: "list[Vector]", run: "SweepRun") -> Iterator[_Group]:
    """Calls of ttnn by the board they run on: the one that was asked for, or the one they were traced on."""
    from torchstone.backends.ttnn.boards import AUTO, BOARDS, L1_SMALL_BYTES, Board, board_of_machine, find_board
    from torchstone.record.value import json_from_value
    from torchstone.sweep.run import ttnn_environment

    wanted, mesh = str(run.options.get("device", AUTO)), str(run.options.get("mesh", ""))
    small_bytes = int(str(run.options.get("l1_small_bytes", L1_SMALL_BYTES)))
    boards: dict[Board, list[Vector]] = {}
    unknown: list[Vector] = []
    for vector in vectors:
        if wanted != AUTO:
            board: Board | None = find_board(wanted, mesh)
        else:
            machine = None if vector.configuration is None else vector.configuration.machine
            board = board_of_machine(json_from_value(machine) if machine is not None else {})
        (unknown if board is None else boards.setdefault(board, [])).append(vector)
    for board, group in boards.items():
        environment = ttnn_environment(board, python=run.python, l1_small_bytes=small_bytes)
        yield _Group(vectors=group, environment=environment, extra={"device": board.label, "mock": board.is_mock})
    if unknown:
        reason = f"its trace does not name a known board: give --backend-option device=NAME ({', '.join(BOARDS)})"
        yield _Group(vectors=unknown, reason=reason)


def _limits(settings: "SweepSettings") -> "Limits":
    from torchstone.record.task import Limits
    from torchstone.units import read_bytes

    memory_bytes = read_bytes(settings.memory_limit) if settings.memory_limit else None
    if settings.memory_limit and memory_bytes is None:
        msg = f"--memory-limit {settings.memory_limit!r} is not a size; give it as 512MiB or 2GiB"
        raise InputError(msg)
    return Limits(deadline_s=settings.timeout or DEFAULT_TIMEOUT_S, memory_bytes=memory_bytes)

"""Carrying a sweep out: a plan on disk, results as they come, the whole at the end."""

import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.db_options import command_line, database_address, database_variable, open_store, with_database
from torchstone.cli.options import Session
from torchstone.cli.sweep_options import hint, opened_executor
from torchstone.errors import InputError
from torchstone.record.task import Environment, Limits
from torchstone.record.vector import FAILED, SweepPlan, SweepRun, Vector, VectorResult

if TYPE_CHECKING:
    from torchstone.sweep.run_folder import RunFolder

_USUAL_TIMEOUT_S = 30.0
_CANARY_S = 120.0  # a machine that is busy is not a device that is broken
_SETTINGS = (
    "backend", "backend_options", "python", "timeout", "memory_limit", "retries", "retry_all", "perf", "perf_runs",
    "pcc", "rtol", "atol", "strict_stride", "reset_command",
)  # fmt: skip


def begin(folder: Path, vectors: list[Vector], given: dict[str, Any]) -> "RunFolder":
    """Ask the backend whether it can run and the database whether it can be written to, and write the plan."""
    from torchstone.backends.registry import describe, read_options
    from torchstone.sweep.run_folder import new_run, new_run_name

    options = read_options(given["backend_options"])
    facts = describe(given["backend"], options=options, python=given["python"] or None)
    if not facts.usable:
        msg = f"backend {given['backend']} cannot run here: {facts.reason}" + (
            f"; {facts.needs}" if facts.needs else ""
        )
        raise InputError(msg)
    run = SweepRun(
        run=new_run_name(),
        backend=given["backend"],
        options=options,
        python=given["python"],
        backend_version=facts.version,
        started=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        command=command_line(),
        selected=len(vectors),
    )
    settings = {name: list(given[name]) if isinstance(given[name], tuple) else given[name] for name in _SETTINGS}
    _limits(settings)
    if (address := _kept_in(given)) is not None:
        open_store(address, create=True).close()
    plan = SweepPlan(run=run, vectors=tuple(vectors), settings={**settings, "forks": facts.forks})
    try:
        return new_run(folder, plan)
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}; choose another --dir"
        raise InputError(msg) from error


def carry_out(run_folder: "RunFolder", left: list[Vector], given: dict[str, Any], session: Session) -> SweepRun:
    """Run what is left of a plan; every result is in the journal before the next is looked at.

    The run is over when the database has it, too: until then it can be resumed.
    """
    import msgspec

    plan = run_folder.plan()
    start = time.perf_counter()
    notes: list[str] = []
    progress = _Progress(len(left), session)
    with _resumable(run_folder, given, session):
        with run_folder.journal() as journal:
            for result in _results(plan, left, given, notes):
                journal.append(result.id, msgspec.to_builtins(result))
                progress.saw(result)
        progress.done()
        whole = run_folder.gathered(finished=True, notes=tuple(notes), elapsed_s=time.perf_counter() - start)
        _remember(whole, given, session)
        run_folder.finish(whole)
    return whole


@contextmanager
def _resumable(run_folder: "RunFolder", given: dict[str, Any], session: Session) -> Iterator[None]:
    """Whatever breaks a run off: what ran is on disk, and the user is told how to go on."""
    folder = shlex.quote(str(run_folder.path.parents[1]))
    go_on = with_database(f"torchstone sweep run --dir {folder} --resume", given["database"])
    try:
        yield
    except KeyboardInterrupt:
        hint(session, f"\nwhat ran is kept; go on with: {go_on}")
        raise
    except OSError as error:
        msg = f"cannot write to {run_folder.path}: {error.strerror or error}; go on later with `{go_on}`"
        raise InputError(msg) from error
    except InputError as error:
        msg = f"{error}; go on later with `{go_on}`"
        raise InputError(msg) from error


def _kept_in(given: dict[str, Any]) -> str | None:
    """The database that keeps the run; None where nobody asked for one and there is none."""
    address = database_address(given["database"])
    asked = given["database"] is not None or "://" in address
    return address if asked or Path(address).is_file() else None


def _remember(run: SweepRun, given: dict[str, Any], session: Session) -> None:
    """Keep the run in the database, where there is one."""
    from torchstone.store.sweeps import add_sweep

    address = _kept_in(given)
    if address is None:
        return
    with open_store(address, create=True) as store:
        add_sweep(store, run)
        hint(session, f"kept in {store.name}")


def _results(plan: SweepPlan, left: list[Vector], given: dict[str, Any], notes: list[str]) -> Iterator[VectorResult]:
    from torchstone.sweep.canary import Canary
    from torchstone.sweep.running import OP_ENTRY, Runner, RunPolicy

    settings = plan.settings
    limits = _limits(settings)
    per_child = given["tasks_per_child"]
    for environment, vectors, extra in _groups(plan, left, database_variable(given["database"])):
        policy = RunPolicy(
            extra=extra,
            timeout_s=settings["timeout"],
            memory_bytes=limits.memory_bytes,
            retries=settings["retries"],
            retry_all=settings["retry_all"],
            probes=plan.run.backend != "eager",
            window=max(64, 4 * given["jobs"] * per_child),
        )
        canary = None
        if vectors[0].configuration is not None:
            reset = tuple(shlex.split(settings["reset_command"]))
            patience_s = max(_CANARY_S, 2 * limits.deadline_s)
            canary = Canary(entry=OP_ENTRY, extra=extra, deadline_s=patience_s, reset_command=reset)
        with opened_executor(
            environment, jobs=given["jobs"], limits=limits, tasks_per_child=per_child, given=given
        ) as executor:
            runner = Runner(executor, policy, canary)
            yield from runner.results(vectors)
        if runner.aborted:
            notes.append(runner.aborted)


def _groups(
    plan: SweepPlan, left: list[Vector], variables: dict[str, str]
) -> Iterator[tuple[Environment, list[Vector], dict[str, Any]]]:
    """Vectors that share an environment: those of ops, and those of each sweep module, which may ask the database."""
    from torchstone.sweep.environments import backend_environment, module_environment
    from torchstone.sweep.run_settings import extra_of

    run, settings = plan.run, plan.settings
    extra = extra_of(run, settings)
    ops = [vector for vector in left if vector.configuration is not None]
    if ops:
        environment = backend_environment(run.backend, run.options, python=run.python, forks=settings["forks"])
        yield environment, ops, extra
    modules: dict[str, list[Vector]] = {}
    for vector in left:
        if vector.configuration is None:
            modules.setdefault(vector.path, []).append(vector)
    for path, vectors in modules.items():
        yield module_environment(Path(path), python=run.python, variables=variables), vectors, extra


def _limits(settings: dict[str, Any]) -> Limits:
    from torchstone.units import read_bytes

    memory_bytes = read_bytes(settings["memory_limit"]) if settings["memory_limit"] else None
    if settings["memory_limit"] and memory_bytes is None:
        msg = f"--memory-limit {settings['memory_limit']!r} is no size; give it as 512MiB or 2GiB"
        raise InputError(msg)
    return Limits(deadline_s=settings["timeout"] or _USUAL_TIMEOUT_S, memory_bytes=memory_bytes)


class _Progress:
    """How far a run is, on the terminal of whoever watches."""

    def __init__(self, total: int, session: Session) -> None:
        self._total = total
        self._seen: dict[str, bool] = {}
        self._shown_s = 0.0
        self._watched = not session.quiet and sys.stderr.isatty() and "CI" not in os.environ

    def saw(self, result: VectorResult) -> None:
        self._seen[result.id] = result.status in FAILED
        now_s = time.monotonic()
        if self._watched and now_s - self._shown_s > 0.2:  # noqa: PLR2004 - five times a second
            self._shown_s = now_s
            failed = sum(self._seen.values())
            click.echo(f"\r\x1b[2K{len(self._seen):,} of {self._total:,}, {failed:,} failed", err=True, nl=False)

    def done(self) -> None:
        if self._watched:
            click.echo("\r\x1b[2K", err=True, nl=False)

"""torchstone sweep repro: one failure as one script."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.options import Session, common_options
from torchstone.cli.progress import step
from torchstone.cli.sweep_options import folder_option, hint, opened_executor
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError

if TYPE_CHECKING:
    from torchstone.record.vector import SweepPlan, Vector, VectorResult
    from torchstone.workers.executor import Executor

_SOURCE = "torchstone.sweep.child.repro:source"


@click.command(short_help="One failure as a script.")
@click.argument("vector_id", metavar="ID")
@click.option("--run", "run_name", default="", metavar="RUN", help="The run it failed in; without it the newest.")
@click.option("--no-shrink", is_flag=True, help="Keep the shapes as they are.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Where to write it.")
@folder_option
@common_options
@click.pass_obj
def command(session: Session, /, *, vector_id: str, folder: Path, **given: Any) -> int:
    """Write the vector ID, which failed, as one standalone Python script, and run the script once to see it fail.

    Shapes are made smaller as long as the failure stays the same. The script makes its own inputs and needs torch
    alone, or also torchstone where only torchstone knows the backend. Exit code 1 when the script does not fail.
    """
    plan, vector, failure = _find(folder, vector_id, given["run_name"])
    with _opened(plan) as executor:
        small = vector
        if not given["no_shrink"]:
            with step("making it smaller", session):
                small = _smaller(plan, vector, failure, executor)
        text = _source(plan, small, failure, executor)
    path = given["out"] or folder / "repros" / f"{vector.op}-{vector.id.partition('-')[2][:12]}.py"
    _write(path, text)
    click.echo(path)
    fails, how = _fails(path, plan)
    hint(
        session,
        f"{_sizes(vector)} -> {_sizes(small)}" if small is not vector else f"{_sizes(vector)}, not made smaller",
    )
    hint(session, f"it {how}" if fails else f"it does not fail on its own: {how}")
    return EXIT_FINE if fails else EXIT_FINDINGS


def _find(folder: Path, identity: str, run_name: str) -> "tuple[SweepPlan, Vector, VectorResult]":
    from torchstone.record.vector import FAILED
    from torchstone.sweep.run_folder import find_run, runs_in

    runs = [find_run(folder, run_name)] if run_name else list(reversed(runs_in(folder)))
    for run in runs:
        found = [one for one in run.results().values() if _is_named(one.id, identity) and one.status in FAILED]
        if len(found) == 1:
            plan = run.plan()
            vector = next(one for one in plan.vectors if one.id == found[0].id)
            if vector.configuration is None:
                msg = f"{identity} belongs to the sweep module {vector.path}, which is a script already"
                raise InputError(msg)
            return plan, vector, found[0]
        if found:
            msg = f"{len(found)} failures begin with {identity!r}; give more of the id"
            raise InputError(msg)
    msg = f"no failure in {folder} begins with {identity!r}; `torchstone sweep report --dir {folder}` lists failures"
    raise InputError(msg)


def _is_named(identity: str, beginning: str) -> bool:
    return identity.startswith(beginning) or identity.partition("-")[2].startswith(beginning)


def _opened(plan: "SweepPlan") -> Any:
    from torchstone.record.task import Limits
    from torchstone.sweep.environments import backend_environment

    run, settings = plan.run, plan.settings
    environment = backend_environment(run.backend, run.options, python=run.python, forks=settings["forks"])
    limits = Limits(deadline_s=settings["timeout"] or 30.0)
    return opened_executor(environment, jobs=2, limits=limits, tasks_per_child=16, given={})


def _smaller(plan: "SweepPlan", vector: "Vector", failure: "VectorResult", executor: "Executor") -> "Vector":
    from torchstone.backends.recorded import NotReplayableError
    from torchstone.record.task import Task
    from torchstone.sweep.payloads import payload_of
    from torchstone.sweep.run_settings import extra_of
    from torchstone.sweep.running import OP_ENTRY, result_of
    from torchstone.sweep.shrinking import shrink

    extra = extra_of(plan.run, plan.settings)

    def still_fails(candidates: "list[Vector]") -> "Vector | None":
        by_id = {one.id: one for one in candidates}
        for one in candidates:
            executor.submit(Task(id=one.id, entry=OP_ENTRY, payload={**payload_of(one), **extra}))
        ended = {result.id: result_of(by_id[result.id], result) for result in executor.results()}
        return next((one for one in candidates if ended[one.id].outcome is failure.outcome), None)

    try:
        return shrink(vector, still_fails)
    except NotReplayableError as error:
        raise InputError(str(error)) from error


def _source(plan: "SweepPlan", vector: "Vector", failure: "VectorResult", executor: "Executor") -> str:
    from torchstone.record.task import Ending, Task
    from torchstone.sweep.payloads import payload_of
    from torchstone.sweep.run_settings import extra_of
    from torchstone.sweep.wording import call_text

    where = f"{plan.run.backend} ({plan.run.backend_version})"
    title = f"{vector.op} on {where}: {failure.outcome.value}.\n\n{call_text(vector)}"
    payload = {**payload_of(vector), **extra_of(plan.run, plan.settings), "title": title.replace('"""', "'''")}
    executor.submit(Task(id="source", entry=_SOURCE, payload=payload))
    (result,) = executor.results()
    if result.ending is not Ending.ANSWERED:
        msg = f"the script could not be written: {result.evidence.error or result.ending.value}"
        raise InputError(msg)
    return str(result.answer)


def _write(path: Path, text: str) -> None:
    from torchstone.record.codec import write_atomically

    try:
        write_atomically(path, text.encode())
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}; choose another --out"
        raise InputError(msg) from error


def _fails(path: Path, plan: "SweepPlan") -> tuple[bool, str]:
    """Run the script once; whether it fails, and how."""
    deadline_s = 60.0 + (plan.settings["timeout"] or 30.0)
    try:
        done = subprocess.run(  # noqa: S603 - the script was written a moment ago
            [plan.run.python or sys.executable, str(path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=deadline_s,
        )
    except subprocess.TimeoutExpired:
        return True, f"does not end within {deadline_s:.0f} s"
    if done.returncode < 0:
        import signal

        return True, f"is ended by {signal.Signals(-done.returncode).name}"
    last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["it says nothing"]
    return done.returncode != 0, f"ends with exit code {done.returncode}: {last[0]}"


def _sizes(vector: "Vector") -> str:
    from torchstone.record.value import show_value, tensors_in

    assert vector.configuration is not None  # noqa: S101 - found with one
    specs = [spec for one in vector.configuration.arguments for spec in tensors_in(one.value)]
    return ", ".join(map(show_value, specs)) or "no tensors"

"""A failing vector -> one script, as short and small as fails, that was seen to fail in an empty folder."""

import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.errors import InputError
from torchstone.temporary import temporary_folder
from torchstone.workflows.executors import ExecutorRequest, opened_executor
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.result_folder import writing_to
from torchstone.workflows.sweep_generate import DEFAULT_FOLDER
from torchstone.workflows.sweep_run import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from torchstone.record.chain import StepResult
    from torchstone.record.vector import SweepPlan, Vector, VectorResult
    from torchstone.workers.executor import Executor

_SCRIPT_S = 120.0  # for the start of Python and torch on a busy machine, before the vector's own time
_DIFFERS = "the backend differs from eager PyTorch"  # what a script prints of a wrong result, and of nothing else
_NOT_ITS_FAULT = "ModuleNotFoundError"  # the environment, not the backend


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproRequest:
    """A vector that failed, by the beginning of its id, and where its script goes."""

    vector_id: str
    run: str = ""  # the beginning of a run's name; "": the newest in which it failed
    shrink: bool = True  # look for smaller tensors with which it still fails
    output: Path | None = None  # None: repros/ in the folder
    folder: Path = DEFAULT_FOLDER


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproResult:
    """The script, and how it ended when it was run in an empty folder."""

    path: Path | None  # None: no script fails on its own, so none was written
    ending: str  # "ends with exit code 1: output 0: PCC 0.5"
    original: str  # the tensors of the vector
    smaller: str | None  # the tensors of the script; None: they could not be made smaller

    @property
    def fails(self) -> bool:
        """Whether the script shows the failure."""
        return self.path is not None


def write_repro(request: ReproRequest, progress: Progress = SILENT) -> ReproResult:
    """Write a failing vector as a standalone script with inputs as small as still fail.

    A script is written only after it failed in an empty folder in the way that the vector did: first that of the
    smallest inputs, then that of the original ones. Raises InputError where no failure, or more than one, matches, and
    for a file that cannot be written. A failure that no script shows is a result (`fails`), not an error.
    """
    from torchstone.record.chain import ARROW
    from torchstone.record.codec import write_atomically

    plan, vector, failure = _find_failure(request)
    with _opened_backend(plan) as executor:
        attempts = [(vector, failure)]
        if request.shrink:
            with progress.step("shrinking the inputs"):
                small = _smaller(plan, vector, failure, executor)
            attempts = [small, *attempts] if small is not None else attempts
        for shown, result in attempts:
            text = _script(plan, shown, result, executor)
            with progress.step("running the script"):
                fails, ending = _run_script(text, plan, failure)
            if fails:
                break
    smaller = _tensors_text(shown) if shown is not vector else None
    if not fails:
        return ReproResult(path=None, ending=ending, original=_tensors_text(vector), smaller=smaller)
    name = f"{vector.op.replace(ARROW, '-')}-{vector.id.partition('-')[2][:12]}.py"
    path = request.output or request.folder / "repros" / name
    with writing_to(path, "--out"):
        write_atomically(path, text.encode())
    return ReproResult(path=path, ending=ending, original=_tensors_text(vector), smaller=smaller)


def _find_failure(request: ReproRequest) -> "tuple[SweepPlan, Vector, VectorResult]":
    from torchstone.record.vector import FAILED
    from torchstone.sweep.folder import find_run, runs_in

    folder, wanted = request.folder, request.vector_id
    runs = [find_run(folder, request.run)] if request.run else list(reversed(runs_in(folder)))
    for run in runs:
        found = [one for one in run.results().values() if _begins(one.id, wanted) and one.status in FAILED]
        if len(found) == 1:
            plan = run.plan()
            vector = next(one for one in plan.vectors if one.id == found[0].id)
            if vector.configuration is None:
                msg = f"{wanted} belongs to the sweep module {vector.path}, which is a script already"
                raise InputError(msg)
            return plan, vector, found[0]
        if found:
            msg = f"{len(found)} failures begin with {wanted!r}; give more of the id"
            raise InputError(msg)
    msg = f"no failure in {folder} begins with {wanted!r}; `torchstone sweep report --dir {folder}` lists failures"
    raise InputError(msg)


def _begins(vector_id: str, text: str) -> bool:
    return vector_id.startswith(text) or vector_id.partition("-")[2].startswith(text)


def _opened_backend(plan: "SweepPlan") -> "AbstractContextManager[Executor]":
    from torchstone.record.task import Limits
    from torchstone.sweep.run import backend_environment

    run = plan.run
    environment = backend_environment(run.backend, run.options, python=run.python, forks=plan.settings.forks)
    limits = Limits(deadline_s=plan.settings.timeout or DEFAULT_TIMEOUT_S)
    return opened_executor(environment, limits, ExecutorRequest(jobs=2, tasks_per_child=16))


def _smaller(
    plan: "SweepPlan", vector: "Vector", failure: "VectorResult", executor: "Executor"
) -> "tuple[Vector, VectorResult] | None":
    """The vector with the smallest inputs that fail alike, and how it failed; None where none is smaller."""
    from torchstone.backends.recorded import NotReplayableError
    from torchstone.record.task import Task
    from torchstone.sweep.generate import shorten, shrink
    from torchstone.sweep.run import OP_ENTRY, extra_of, fails_alike, result_of
    from torchstone.sweep.vectors import payload_of

    extra = extra_of(plan.run, plan.settings)
    ended: dict[str, VectorResult] = {}

    def still_fails(candidates: "list[Vector]") -> "Vector | None":
        by_id = {one.id: one for one in candidates}
        for one in candidates:
            executor.submit(Task(id=one.id, entry=OP_ENTRY, payload={**payload_of(one), **extra}))
        ended.update({result.id: result_of(by_id[result.id], result) for result in executor.results()})
        return next((one for one in candidates if fails_alike(ended[one.id], failure)), None)

    try:
        small = shrink(shorten(vector, _results_of_steps(vector, executor), still_fails), still_fails)
    except NotReplayableError as error:
        raise InputError(str(error)) from error
    return (small, ended[small.id]) if small.id in ended else None


def _results_of_steps(vector: "Vector", executor: "Executor") -> "list[StepResult]":
    """What the steps of a chain give, so that a part of it can be run alone; of one op nothing is asked."""
    from msgspec import convert

    from torchstone.record.chain import StepResult, is_chain
    from torchstone.record.config import TensorFacts
    from torchstone.record.task import Ending, Task
    from torchstone.record.tensor import TensorSpec
    from torchstone.sweep.run import RESULTS_OF_STEPS
    from torchstone.sweep.vectors import payload_of

    if not is_chain(vector.op):
        return []
    executor.submit(Task(id="results", entry=RESULTS_OF_STEPS, payload=payload_of(vector)))
    (result,) = executor.results()
    if result.ending is not Ending.ANSWERED:
        why = result.evidence.error or result.ending.value
        msg = f"the steps of {vector.id} could not be run: {why}; add --no-shrink"
        raise InputError(msg)
    found = []
    for one in result.answer or ():
        step, _, rest = str(one["name"]).removeprefix("s").partition("_")
        facts = convert({"tensor": 0, **one["facts"]}, TensorFacts)
        found.append(StepResult(step=int(step), rest=rest, spec=convert(one["spec"], TensorSpec), facts=facts))
    return found


def _script(plan: "SweepPlan", vector: "Vector", failure: "VectorResult", executor: "Executor") -> str:
    from torchstone.record.task import Ending, Task
    from torchstone.sweep.run import WRITE_SCRIPT, extra_of
    from torchstone.sweep.vectors import call_text, payload_of

    where = f"{plan.run.backend} ({plan.run.backend_version})"
    title = f"{vector.op} on {where}: {failure.outcome.value}.\n\n{call_text(vector)}"
    payload = {
        **payload_of(vector),
        **extra_of(plan.run, plan.settings),
        "title": title.replace('"""', "'''"),
        "verdict": failure.verdict,
    }
    executor.submit(Task(id="source", entry=WRITE_SCRIPT, payload=payload))
    (result,) = executor.results()
    if result.ending is not Ending.ANSWERED:
        msg = f"the script could not be written: {result.evidence.error or result.ending.value}"
        raise InputError(msg)
    return str(result.answer)


def _run_script(text: str, plan: "SweepPlan", failure: "VectorResult") -> tuple[bool, str]:
    """Run a script in an empty folder; whether it fails as the vector did, and how it ended."""
    from torchstone.record.check import Outcome

    deadline_s = _SCRIPT_S + (plan.settings.timeout or DEFAULT_TIMEOUT_S)
    with temporary_folder("repro") as folder:
        path = folder / "repro.py"
        path.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run(  # noqa: S603 - the script was written a moment ago
                [plan.run.python or sys.executable, str(path)],
                capture_output=True,
                text=True,
                check=False,
                timeout=deadline_s,
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            return failure.outcome is Outcome.TIMED_OUT, f"does not end within {deadline_s:.0f} s"
    if done.returncode < 0:
        died = failure.outcome in (Outcome.CRASHED, Outcome.OUT_OF_MEMORY)
        return died, f"is ended by {signal.Signals(-done.returncode).name}"
    is_wrong = _DIFFERS in done.stdout
    printed = done.stdout if is_wrong else done.stdout + done.stderr
    last = printed.strip().splitlines()[-1:] or ["no output"]
    ending = f"ends with exit code {done.returncode}: {last[0]}"
    alike = is_wrong if failure.outcome is Outcome.WRONG else not is_wrong and _NOT_ITS_FAULT not in done.stderr
    return done.returncode != 0 and alike, ending


def _tensors_text(vector: "Vector") -> str:
    from torchstone.record.value import show_value, tensors_in

    assert vector.configuration is not None  # noqa: S101 - _find_failure
    specs = [spec for one in vector.configuration.arguments for spec in tensors_in(one.value)]
    return ", ".join(map(show_value, specs)) or "no tensors"

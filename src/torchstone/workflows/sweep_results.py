"""Runs of a sweep folder or database -> a comparison, their history, one failure as a script, what ran as traced."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.sweep_summary import RETRACE_RESULTS, RetraceSummary, retraced
from torchstone.workflows.database import open_store
from torchstone.workflows.executors import ExecutorRequest, opened_executor
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.result_folder import writing_to
from torchstone.workflows.sweep_generate import DEFAULT_FOLDER
from torchstone.workflows.sweep_perf import PerfRequest, compare_times
from torchstone.workflows.sweep_run import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from torchstone.record.chain import StepResult
    from torchstone.record.vector import Quarantine, SweepHistory, SweepPlan, SweepRun, Vector, VectorResult
    from torchstone.sweep.compare_runs import RunComparison
    from torchstone.sweep.history import HistorySummary
    from torchstone.workers.executor import Executor

NEWEST = "last"  # names the newest run
_SHOWN = 10
_RETRACE_S = 60.0
_PAGE = 1_000  # keys of one query
_SCRIPT_S = 120.0  # for the start of Python and torch on a busy machine, before the vector's own time
_DIFFERS = "the backend differs from eager PyTorch"  # what a script prints of a wrong result, and of nothing else
_NOT_ITS_FAULT = "ModuleNotFoundError"  # the environment, not the backend


# --- Comparing two runs ---


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Two runs: the beginning of a name, `last`, or the folder of a run."""

    first: str
    second: str
    slower_by: float = 1.15  # the smallest ratio of times that counts as slower
    perf: bool = False  # measure both environments again, by turns
    perf_rounds: int = 7
    folder: Path = DEFAULT_FOLDER
    database: str | None = None  # the database that keeps the runs; None: they are in the folder


def compare_sweeps(request: CompareRequest, progress: Progress = SILENT) -> "RunComparison":
    """Compare two runs: new failures, fixed vectors and slower ones; with `perf`, times are measured again by turns.

    Raises UnreadableFileError where a name matches no run, or more than one.
    """
    from msgspec.structs import replace

    from torchstone.sweep.compare_runs import compare_runs

    first, second = (_find_run(name, request.folder, request.database) for name in (request.first, request.second))
    found = compare_runs(first, second, slower_by=request.slower_by)
    if not request.perf:
        return found
    if request.database is not None:
        msg = "--perf measures the environments of runs in a folder; drop --db"
        raise InputError(msg)
    again = PerfRequest(
        first=first.run,
        second=second.run,
        slower_by=request.slower_by,
        rounds=request.perf_rounds,
        folder=request.folder,
    )
    return replace(found, perf=compare_times(again, progress))


def _find_run(name: str, folder: Path, database: str | None) -> "SweepRun":
    from torchstone.sweep.folder import RunFolder, find_run

    if database is not None:
        return _find_run_in_database(name, database)
    path = Path(name)
    return RunFolder(path=path).run() if (path / "plan.json").is_file() else find_run(folder, name).run()


def _find_run_in_database(name: str, database: str) -> "SweepRun":
    from torchstone.store.sweeps import read_sweep, sweep_runs

    with open_store(database) as store:
        known = [head.run for head in sweep_runs(store)]
        found = known[-1:] if name == NEWEST else [one for one in known if one.startswith(name)]
        run = read_sweep(store, found[0]) if len(found) == 1 else None
        if run is None:
            newest = ", ".join(known[-_SHOWN:]) or "none"
            msg = f"{len(found) or 'no'} runs in {store.name} begin with {name!r}; the newest are {newest}"
            raise UnreadableFileError(msg)
    return run


# --- History of a folder or database ---


def read_history(folder: Path = DEFAULT_FOLDER, database: str | None = None) -> "SweepHistory":
    """All runs of a database, or of a folder where no database is given, oldest first.

    Raises UnreadableFileError where there is none.
    """
    from torchstone.record.vector import SweepHistory

    if database is not None:
        from torchstone.store.sweeps import read_sweep, sweep_runs

        with open_store(database) as store:
            runs = tuple(run for head in sweep_runs(store) if (run := read_sweep(store, head.run)) is not None)
        found = SweepHistory(runs=runs)
    else:
        from torchstone.sweep.folder import runs_in
        from torchstone.sweep.vectors import call_text

        folders = runs_in(folder)
        texts = {vector.id: call_text(vector) for one in folders for vector in one.plan().vectors}
        found = SweepHistory(runs=tuple(one.run() for one in folders), texts=texts)
    if not found.runs:
        msg = f"{folder if database is None else database} holds no run; make one with `torchstone sweep run`"
        raise UnreadableFileError(msg)
    return found


def run_in_history(history: "SweepHistory", name: str = NEWEST, *, origin: str = "the history") -> "SweepRun":
    """One run by the beginning of its name; `origin` names the history in the error.

    Raises UnreadableFileError where no run, or more than one, matches.
    """
    found = [history.runs[-1]] if name == NEWEST else [run for run in history.runs if run.run.startswith(name)]
    if len(found) != 1:
        known = ", ".join(run.run for run in history.runs[-5:])
        what = "no run" if not found else f"{len(found)} runs"
        msg = f"{what} in {origin} begin with {name!r}; the newest are {known}"
        raise UnreadableFileError(msg)
    return found[0]


def vector_in_history(history: "SweepHistory", vector_id: str) -> "list[tuple[SweepRun, VectorResult]]":
    """The result of one vector in each run, by the beginning of its id.

    Raises InputError where no vector, or more than one, matches.
    """
    results = [(run, result) for run in history.runs for result in run.results]
    found = [(run, result) for run, result in results if result.id.startswith(vector_id)]
    if not found:
        found = [(run, result) for run, result in results if result.id.partition("-")[2].startswith(vector_id)]
    if len({result.id for _, result in found}) != 1:
        what = "no vector" if not found else "several vectors"
        msg = f"{what} begin with {vector_id!r}; `torchstone sweep report --json` lists them"
        raise InputError(msg)
    return found


def write_history(history: "SweepHistory", folder: Path = DEFAULT_FOLDER) -> Path:
    """Write the history and its page to a folder; returns the page.

    Raises InputError for a folder that cannot be written.
    """
    from torchstone.record.codec import save
    from torchstone.report.render import write_report
    from torchstone.report.sections.sweep import FILE

    with writing_to(folder):
        save(folder / FILE, history)
        return write_report(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRequest:
    """The runs of a folder, or of a database."""

    folder: Path = DEFAULT_FOLDER
    database: str | None = None


def summarize_history(request: HistoryRequest) -> "HistorySummary":
    """Since when vectors fail, which are flaky, and the trend of each op and model.

    Raises UnreadableFileError where there is no run.
    """
    from torchstone.sweep.history import HistorySummary, first_bad, flaky_vectors, trend_of

    found = read_history(request.folder, request.database)
    return HistorySummary(
        runs=len(found.runs),
        first_bad=first_bad(found),
        flaky=flaky_vectors(found),
        ops=trend_of(found, by="op"),
        models=trend_of(found, by="model"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRequest:
    """A known failure to add or remove; without one, the list is read."""

    vector: str = ""  # the beginning of an id, or an op
    reason: str = ""
    backend: str = ""
    remove: bool = False
    folder: Path = DEFAULT_FOLDER


def change_quarantine(request: QuarantineRequest) -> "Quarantine":
    """Add or remove an entry, and return the list.

    Raises InputError for an entry without a reason, one that is not there, and a folder that cannot be written.
    """
    from torchstone.record.vector import Quarantine, QuarantineEntry
    from torchstone.sweep.folder import read_quarantine, write_quarantine

    known = read_quarantine(request.folder)
    if not request.vector:
        return known
    others = tuple(one for one in known.entries if (one.vector, one.backend) != (request.vector, request.backend))
    if request.remove:
        if len(others) == len(known.entries):
            msg = f"{request.vector!r} is not in the quarantine of {request.folder}; drop ID to list it"
            raise InputError(msg)
        changed = Quarantine(entries=others)
    elif not request.reason:
        msg = f"say why {request.vector!r} is quarantined with --reason, for those who find it later"
        raise InputError(msg)
    else:
        added = datetime.now(tz=UTC).isoformat(timespec="seconds")
        entry = QuarantineEntry(vector=request.vector, backend=request.backend, reason=request.reason, added=added)
        changed = Quarantine(entries=(*others, entry))
    with writing_to(request.folder):
        write_quarantine(request.folder, changed)
    return changed


# --- One failure as a script ---


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
    name = f"{vector.op}-{vector.id.partition('-')[2][:12]}.py"
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
    with TemporaryDirectory(prefix="torchstone-repro-") as folder:
        path = Path(folder) / "repro.py"
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
    last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["no output"]
    ending = f"ends with exit code {done.returncode}: {last[0]}"
    is_wrong = _DIFFERS in done.stdout
    alike = is_wrong if failure.outcome is Outcome.WRONG else not is_wrong and _NOT_ITS_FAULT not in done.stderr
    return done.returncode != 0 and alike, ending


def _tensors_text(vector: "Vector") -> str:
    from torchstone.record.value import show_value, tensors_in

    assert vector.configuration is not None  # noqa: S101 - _find_failure
    specs = [spec for one in vector.configuration.arguments for spec in tensors_in(one.value)]
    return ", ".join(map(show_value, specs)) or "no tensors"


# --- Retracing: the ops that a sweep executes ---


@dataclass(frozen=True, slots=True, kw_only=True)
class RetraceRequest:
    """A run, by the beginning of its name."""

    run: str = NEWEST
    jobs: int = 2  # processes at the same time
    folder: Path = DEFAULT_FOLDER
    database: str | None = None  # the database that keeps the run; None: it is in the folder


def retrace_sweep(request: RetraceRequest, progress: Progress = SILENT) -> RetraceSummary:
    """Record the ops that the vectors of a run execute, and compare them with the traced configurations.

    Only vectors of ops that ran are recorded; the summary counts the others. A database has the vectors of
    configurations that were traced, so others (neighbours, samples) are among those. Raises UnreadableFileError for an
    unknown run.
    """
    if request.database is None:
        name, vectors, selected = _ran_in_folder(request)
    else:
        name, vectors, selected = _ran_in_database(request, request.database)
    with progress.step(f"recording {len(vectors):,} vectors again"):
        answers = _recorded(vectors, request.jobs)
    rows = tuple(retraced(vector.id, vector.op, vector.suite, answers[vector.id]) for vector in vectors)
    counts = {name: sum(row.result == name for row in rows) for name in RETRACE_RESULTS}
    return RetraceSummary(run=name, counts=counts, left_out=selected - len(vectors), vectors=rows)


def _ran_in_folder(request: RetraceRequest) -> "tuple[str, list[Vector], int]":
    """The name of a run, its vectors of ops that ran, and how many vectors were selected."""
    from torchstone.record.vector import Status
    from torchstone.sweep.folder import find_run

    found = find_run(request.folder, request.run)
    plan = found.plan()
    ran = {result.id for result in found.results().values() if result.status is not Status.NOT_RUN}
    vectors = [one for one in plan.vectors if one.configuration is not None and one.id in ran]
    return plan.run.run, sorted(vectors, key=lambda one: one.id), len(plan.vectors)


def _ran_in_database(request: RetraceRequest, database: str) -> "tuple[str, list[Vector], int]":
    """The same from a database: a result names its configuration, and the database has its arguments and facts."""
    from torchstone.record.vector import Status
    from torchstone.store.rows import Query
    from torchstone.sweep.vectors import vector_of

    run = _find_run_in_database(request.run, database)
    suites = {one.configuration: one.suite for one in run.results if one.status is not Status.NOT_RUN}
    suites.pop("", None)  # of a sweep module
    keys = sorted(suites)
    with open_store(database) as store:
        pages = [tuple(keys[first : first + _PAGE]) for first in range(0, len(keys), _PAGE)]
        seen = (one for page in pages for one in store.configurations(Query(chains=None, keys=page)))
        vectors = [vector_of(one, suites[one.key]) for one in seen]
    return run.run, sorted(vectors, key=lambda one: one.id), max(run.selected, len(run.results))


def _recorded(vectors: "Sequence[Vector]", jobs: int) -> Mapping[str, dict[str, object]]:
    from torchstone.record.task import Ending, Limits, Task
    from torchstone.sweep.run import RECORD_AGAIN, backend_environment
    from torchstone.sweep.vectors import payload_of

    answers: dict[str, dict[str, object]] = {}
    request = ExecutorRequest(jobs=jobs, tasks_per_child=64)
    with opened_executor(backend_environment("eager", {}), Limits(deadline_s=_RETRACE_S), request) as executor:
        for vector in vectors:
            executor.submit(Task(id=vector.id, entry=RECORD_AGAIN, payload=payload_of(vector)))
        for result in executor.results():
            if result.ending is Ending.ANSWERED and isinstance(result.answer, dict):
                answers[result.id] = result.answer
            else:
                why = result.evidence.error or result.ending.value
                answers[result.id] = {"result": "not told", "differences": [why]}
    return answers


# --- Files of tt-metal's sweeps ---


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRequest:
    """A folder of tt-metal's vectors and results, and the sweep that they go to or come from."""

    path: Path
    run: str = NEWEST
    folder: Path = DEFAULT_FOLDER
    database: str | None = None


def export_to_tt_metal(request: ExchangeRequest) -> tuple[Path, ...]:
    """Write vectors_export/ with the vectors of the sweep modules, and results_export/ with a run where there is one.

    Raises InputError for a folder that cannot be written, UnreadableFileError for an unknown run.
    """
    from torchstone.record.codec import write_atomically
    from torchstone.sweep.folder import find_run, read_vectors, runs_in, select
    from torchstone.sweep.tt_metal_files import results_export, vectors_export

    vectors = [vector for vector in select(read_vectors(request.folder)) if vector.configuration is None]
    texts = {f"vectors_export/{name}": text for name, text in vectors_export(vectors).items()} if vectors else {}
    if runs_in(request.folder):
        run = find_run(request.folder, request.run).run()
        texts |= {f"results_export/{name}": text for name, text in results_export(run).items()}
    if not texts:
        msg = f"{request.folder} has neither vectors of sweep modules nor a run; there is nothing to export"
        raise InputError(msg)
    with writing_to(request.path, "DIR"):
        for name, text in texts.items():
            (request.path / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(request.path / name, text.encode())
    return tuple(request.path / name for name in texts)


def import_from_tt_metal(request: ExchangeRequest) -> "SweepRun":
    """Add the results of tt-metal's sweeps to the folder, and to a database that is given; again changes nothing.

    Raises UnreadableFileError for files of something else.
    """
    from torchstone.record.vector import SweepPlan
    from torchstone.store.sweeps import add_sweep
    from torchstone.sweep.folder import new_run
    from torchstone.sweep.tt_metal_files import read_results_export

    run = read_results_export(request.path)
    with writing_to(request.folder):
        folder = new_run(request.folder, SweepPlan(run=run))
        folder.finish(run)
    if request.database is not None:
        with open_store(request.database, create=True) as store:
            add_sweep(store, run)
    return run

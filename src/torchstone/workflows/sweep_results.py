"""Runs of a sweep folder or database -> a comparison, their history, and what ran as traced."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.folder_lock import SHORT_WRITE_S, exclusive
from torchstone.record.sweep_summary import RETRACE_RESULTS, RetraceSummary, retraced
from torchstone.units import many
from torchstone.workflows.database import open_store
from torchstone.workflows.executors import ExecutorRequest, opened_executor
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.result_folder import writing_to
from torchstone.workflows.sweep_generate import DEFAULT_FOLDER
from torchstone.workflows.sweep_perf import PerfRequest, compare_times

if TYPE_CHECKING:
    from torchstone.record.vector import Quarantine, SweepHistory, SweepRun, Vector, VectorResult
    from torchstone.sweep.compare_runs import RunComparison
    from torchstone.sweep.history import HistorySummary

NEWEST = "last"  # names the newest run
_SHOWN = 10
_RETRACE_S = 60.0
_PAGE = 1_000  # keys of one query


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
        what = "no run" if not found else many(len(found), "run")
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

    with exclusive(folder, wait_s=SHORT_WRITE_S), writing_to(folder):
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
    from torchstone.sweep.folder import read_quarantine

    if not request.vector:
        return read_quarantine(request.folder)
    with exclusive(request.folder, wait_s=SHORT_WRITE_S):
        return _changed_quarantine(request)


def _changed_quarantine(request: QuarantineRequest) -> "Quarantine":
    from torchstone.record.vector import Quarantine, QuarantineEntry
    from torchstone.sweep.folder import read_quarantine, write_quarantine

    known = read_quarantine(request.folder)
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
    with progress.step(f"recording {many(len(vectors), 'vector')} again"):
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

    whole = select(read_vectors(request.folder))
    vectors = [vector for vector in whole if vector.configuration is None or vector.parameters]
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


def import_vectors_from_tt_metal(request: ExchangeRequest) -> "tuple[Vector, ...] | None":
    """Add the vectors of tt-metal's files to the folder, each as a call of torch where its op has one.

    None for files of results. Raises UnreadableFileError for files of something else.
    """
    from torchstone.sweep.tt_metal_files import has_vectors, read_vectors_export
    from torchstone.sweep.tt_metal_vectors import as_torch_call
    from torchstone.workflows.sweep_generate import write_by_module

    if not has_vectors(request.path):
        return None
    vectors = tuple(map(as_torch_call, read_vectors_export(request.path)))
    write_by_module(request.folder, vectors)
    return vectors


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

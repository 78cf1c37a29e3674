"""A runtime log, a report or a script -> its memory timeline, documents and page; two runs -> their comparison."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from torchstone.errors import InputError
from torchstone.record.folder_lock import SHORT_WRITE_S, exclusive
from torchstone.units import many, show_bytes
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.result_folder import writing_to

if TYPE_CHECKING:
    from torchstone.memory.folder import MemoryFolder
    from torchstone.memory.read_log import LastRun
    from torchstone.memory.study import Study
    from torchstone.record.memory import MemoryTimeline
    from torchstone.record.memory_findings import MemoryComparison

MOST_DOCUMENTED_OPS = 200_000  # beyond, documents with a row for each op are written only when asked for
COMPARISON_PAGE = "comparison_report.html"

OnBytes = Callable[[int], None]  # gets the number of bytes that were read so far
WatchReading = Callable[[str], AbstractContextManager[OnBytes | None]]  # opened for each source that is read


@contextmanager
def unwatched(_source: str) -> Iterator[None]:
    """Do not report the progress of reading."""
    yield


# --- Reading a log ---


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """A log file, a report folder, or a report name in the place of reports."""

    source: str
    rank: str = ""  # one process of a multi-host log, such as 1,0
    dialect: str = ""  # the log format; "": detected


def read_memory(request: LogRequest, *, watch: WatchReading = unwatched) -> "Study":
    """Read a log, or the timeline of a report.

    `watch` opens a context per source that receives the bytes read so far. Lines that cannot be read are part of the
    timeline. Raises UnreadableFileError for a missing or damaged file, InputError for an unknown dialect or rank.
    """
    from torchstone.memory.study import Study

    return Study(_read(request, watch))


def read_ranks(request: LogRequest, *, watch: WatchReading = unwatched) -> tuple[tuple[str, "Study"], ...]:
    """Read every process of a multi-host log, each as a world of its own; lowest rank first.

    Raises as `read_memory`, and InputError for a report, which is about one process.
    """
    from torchstone.memory.folder import locate
    from torchstone.memory.read_log import parse_ranks
    from torchstone.memory.study import Study

    place = locate(request.source)
    if place.is_dir():
        msg = f"{request.source} is the report of one process; give the log to see all ranks"
        raise InputError(msg)
    with watch(request.source) as on_bytes:
        found = parse_ranks(place, dialect=request.dialect, progress=on_bytes)
    return tuple((rank, Study(timeline)) for rank, timeline in found.items())


def read_op(request: LogRequest, op: int, *, watch: WatchReading = unwatched) -> "Study":
    """Read a log that must have an op of this index; raises InputError otherwise."""
    study = read_memory(request, watch=watch)
    if op >= len(study.timeline.ops):
        msg = f"--op {op} is not in the log: it has the ops 0 to {len(study.timeline.ops) - 1}"
        raise InputError(msg)
    return study


def warnings_of(study: "Study") -> tuple[str, ...]:
    """Warnings about a log that make its numbers incomplete or doubtful."""
    from torchstone.memory.out_of_memory import diagnose

    return tuple(diagnose(study.timeline))


def _read(request: LogRequest, watch: WatchReading) -> "MemoryTimeline":
    from torchstone.memory.folder import open_timeline

    with watch(request.source) as on_bytes:
        return open_timeline(request.source, rank=request.rank, dialect=request.dialect, progress=on_bytes)


# --- Documents and pages ---


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest(LogRequest):
    """A log, and the folder for its documents and page."""

    directory: Path | None = None  # None: NAME in the place of reports
    name: str = ""  # "": from the name of the log
    all_documents: bool = True  # False: none with a row for each op, where the log has very many


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedLog:
    """A log and the folder with its documents."""

    folder: "MemoryFolder"
    study: "Study"


def parse_memory(request: ReportRequest, progress: Progress = SILENT, *, watch: WatchReading = unwatched) -> ParsedLog:
    """Read a log and write its JSON documents; the files and warnings are noted.

    Raises as `read_memory`, and InputError for a folder that cannot be written.
    """
    from torchstone.memory.folder import folder_for

    study = read_memory(request, watch=watch)
    wanted = folder_for(request.source, directory=request.directory, name=request.name)
    folder = _write_documents(wanted, study, progress, log=Path(request.source), all_documents=request.all_documents)
    return ParsedLog(folder=folder, study=study)


def report_memory(
    request: ReportRequest, progress: Progress = SILENT, *, watch: WatchReading = unwatched
) -> "MemoryFolder":
    """Write the page of a log, after its documents, or of a folder that has them; raises as `parse_memory` does."""
    from torchstone.memory.folder import find_folder, locate

    place = locate(request.source)
    if place.is_dir() and request.directory is None and not request.name:
        folder = find_folder(place)
    else:
        folder = parse_memory(replace(request, all_documents=False), progress, watch=watch).folder
    write_page(folder.path, folder.page, progress)
    return folder


def write_page(folder: Path, page: Path, progress: Progress = SILENT) -> Path:
    """Render the page of a report folder, and its content as JSON beside it; raises OSError where that fails."""
    from torchstone.record.codec import write_atomically
    from torchstone.report.page import assemble, render_page
    from torchstone.report.render import SECTIONS, render_twin
    from torchstone.report.section import ReportFolder

    report = assemble(ReportFolder(folder), SECTIONS)
    write_atomically(page.with_suffix(".json"), render_twin(report))
    write_atomically(page, render_page(report))
    _note_written(page, progress)
    return page


def write_demo(*, out_of_memory: bool = False, progress: Progress = SILENT) -> "MemoryFolder":
    """Write the log of a sample model, and its report; no device is needed."""
    from torchstone.memory.folder import HEALTHY, OUT_OF_MEMORY, demo_log, folder_for
    from torchstone.memory.read_log import parse_log
    from torchstone.memory.study import Study
    from torchstone.record.codec import write_atomically

    folder = folder_for("demo-out-of-memory.log" if out_of_memory else "demo.log")
    write_atomically(folder.log, demo_log(OUT_OF_MEMORY if out_of_memory else HEALTHY))
    folder = _write_documents(folder, Study(parse_log(folder.log)), progress, log=folder.log, warn=False)
    write_page(folder.path, folder.page, progress)
    return folder


def _write_documents(
    wanted: "MemoryFolder",
    study: "Study",
    progress: Progress,
    *,
    log: Path,
    warn: bool = True,
    all_documents: bool = False,
) -> "MemoryFolder":
    """Write the documents to the folder, or beside it if it holds another report; gives the one that was written."""
    from torchstone.memory.folder import next_folder, pack_timeline, write_folder

    packed = pack_timeline(study.timeline)
    each_op = all_documents or len(study.timeline.ops) <= MOST_DOCUMENTED_OPS
    folder = None
    while folder is None:  # another command may take the folder before this one has its lock
        free = next_folder(wanted, packed=packed, log=log)
        with exclusive(free.path, wait_s=SHORT_WRITE_S), writing_to(free.path):
            if next_folder(wanted, packed=packed, log=log) == free:
                write_folder(free, study.timeline, packed=packed, each_op=each_op)
                folder = free
    if folder != wanted:
        progress.note(f"{wanted.path} holds another report, which is kept")
    for path in (folder.memory, folder.operations, folder.registry, folder.timeline):
        if each_op or path not in (folder.memory, folder.operations):
            _note_written(path, progress)
    if not each_op:
        progress.note(
            f"the documents with a row for each of {many(len(study.timeline.ops), 'op')} are not written; "
            f"`torchstone memory parse {quote(str(folder.path))} --dir OTHER` writes them"
        )
    for warning in warnings_of(study) if warn else ():
        progress.note(f"warning: {warning}")
    return folder


def _note_written(path: Path, progress: Progress) -> None:
    progress.note(f"wrote {path} ({show_bytes(path.stat().st_size)})")


# --- Comparing runs ---


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Two or more logs or reports to compare; the first is what the others are compared with."""

    sources: tuple[str, ...]
    rank: str = ""
    dialect: str = ""
    memory: str = ""  # the memory whose effects are compared; "": DRAM
    max_growth: float | None = None  # percent that a peak may grow
    directory: Path | None = None  # for the page; None: none is written


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """Runs, and the differences of each from the first."""

    runs: tuple["Study", ...]
    comparisons: tuple["MemoryComparison", ...]  # one for each run after the first
    growth: tuple[str, ...]  # a line for each peak that grew by more than `max_growth` percent


def compare_memory(
    request: CompareRequest, progress: Progress = SILENT, *, watch: WatchReading = unwatched
) -> ComparedRuns:
    """Align the ops of each run with the first: where they begin to differ, with the effect on memory per bank.

    Raises as `read_memory`, and InputError for fewer than two runs or a directory that cannot be written. Growth beyond
    the limit is a result.
    """
    from torchstone.memory.compare import compare

    if len(request.sources) < 2:  # noqa: PLR2004 - two sides
        msg = "there is nothing to compare: give at least two logs or reports"
        raise InputError(msg)
    first, *others = (
        read_memory(LogRequest(source=source, rank=request.rank, dialect=request.dialect), watch=watch)
        for source in request.sources
    )
    found = tuple(compare(first, other, memory=request.memory) for other in others)
    if request.directory is not None:
        _write_comparison(request.directory, _joined((first, *others), found), progress)
    growth = [] if request.max_growth is None else _growth(first, found[-1], request.max_growth)
    return ComparedRuns(runs=(first, *others), comparisons=found, growth=tuple(growth))


def _growth(first: "Study", found: "MemoryComparison", limit_percent: float) -> list[str]:
    from torchstone.memory.compare import grown_peaks

    lines = []
    for mine, other in grown_peaks(found, max_growth_percent=limit_percent):
        before, after = (peak.state.allocated / first.timeline.ticks_per_mib for peak in (mine, other))
        lines.append(f"{mine.memory} peak grew from {before:.3f} to {after:.3f} MiB per bank")
    return lines


def _joined(runs: Sequence["Study"], found: Sequence["MemoryComparison"]) -> "MemoryComparison":
    """All comparisons with the first run as one document, with a summary of every run."""
    import msgspec

    from torchstone.memory.compare import summarize

    return msgspec.structs.replace(found[0], others=tuple(found[1:]), runs=tuple(summarize(run) for run in runs))


def _write_comparison(directory: Path, found: "MemoryComparison", progress: Progress) -> None:
    from torchstone.record.codec import save
    from torchstone.report.sections.memory_comparison import FILE

    with writing_to(directory):
        save(directory / FILE, found)
        write_page(directory, directory / COMPARISON_PAGE, progress)


# --- The runs that were kept, and a budget for them ---


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A report of a history."""

    folder: "MemoryFolder"
    study: "Study"
    written: datetime


def memory_history(name: str) -> tuple[KeptRun, ...]:
    """The reports NAME, NAME-2, ... oldest first; raises InputError where there is none."""
    from torchstone.memory.folder import earlier_runs, list_folders, read_timeline, reports_home
    from torchstone.memory.study import Study

    found = earlier_runs(name)
    if not found:
        known = ", ".join(one.name for one in list_folders(reports_home())) or "none"
        msg = f"there is no report {name!r} in {reports_home()}; reports: {known}"
        raise InputError(msg)
    return tuple(
        KeptRun(
            folder=folder,
            study=Study(read_timeline(folder.timeline)),
            written=datetime.fromtimestamp(folder.timeline.stat().st_mtime, tz=UTC),
        )
        for folder in found
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRequest(LogRequest):
    """Limits for the peaks of a run, on the device and against an earlier run."""

    max_bytes: tuple[tuple[str, int], ...] = ()  # by memory, over all its banks
    max_growth: float | None = None  # percent that a peak may be above the earlier run's
    against: str = ""  # the earlier run; "": the report before this one of the same name


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetResult:
    """What was checked, each with the sentences that say how its limit is exceeded."""

    study: "Study"
    against: str  # the run that growth was measured against; "" where it was not
    checks: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def violations(self) -> tuple[str, ...]:
        """All that is over its limit, or cannot be checked."""
        return tuple(sentence for _, said in self.checks for sentence in said)


def check_memory(request: BudgetRequest, *, watch: WatchReading = unwatched) -> BudgetResult:
    """Hold the peaks of a run against a budget.

    Raises as `read_memory`, and InputError where there is no limit, or no earlier run to measure growth against. A peak
    over its limit, a failed allocation, and a memory that the log does not read are results.
    """
    from torchstone.memory.compare import compare
    from torchstone.memory.usage import find_peaks

    if not request.max_bytes and request.max_growth is None:
        msg = "there is nothing to check: give --max-dram, --max-l1 or --max-growth"
        raise InputError(msg)
    study = read_memory(request, watch=watch)
    mib = study.timeline.ticks_per_mib
    peaks = {peak.memory: peak.state for peak in find_peaks(study)}
    failed = tuple(f"an allocation failed: {failure.message}" for failure in study.timeline.failures[-1:])
    checks = [("allocations", failed)]
    for memory, limit in request.max_bytes:
        state = peaks.get(memory)
        said = ""
        if state is None:
            said = f"the log has no reading of {memory}, so its limit cannot be checked"
        elif (used := state.allocated * state.banks * (1 << 20) // mib) > limit:
            said = f"{memory} peak is {show_bytes(used)} on the device, over the limit of {show_bytes(limit)}"
        checks.append((f"{memory} peak", (said,) if said else ()))
    against = request.against or (_run_before(request.source) if request.max_growth is not None else "")
    if request.max_growth is not None:
        earlier = read_memory(LogRequest(source=against, rank=request.rank, dialect=request.dialect), watch=watch)
        checks.append(("growth of the peaks", tuple(_growth(earlier, compare(earlier, study), request.max_growth))))
    return BudgetResult(study=study, against=against, checks=tuple(checks))


def _run_before(source: str) -> str:
    """The report before this one: of NAME the newest but one, of NAME-3 the one before it, of a log the newest."""
    from torchstone.memory.folder import earlier_runs, find_folder, locate, report_name

    place = locate(source)
    name = find_folder(place).name if place.is_dir() else report_name(source)
    stem = re.sub(r"-\d+$", "", name)
    runs = earlier_runs(stem)
    if stem not in [one.name for one in runs]:
        runs = earlier_runs(name)
    paths = [str(one.path) for one in runs if not place.is_dir() or one.path != place]
    if place.is_dir() and place in [one.path for one in runs]:
        paths = paths[: [one.path for one in runs].index(place)]
    if not paths:
        msg = f"there is no run before {source!r} to measure growth against; give one with --against"
        raise InputError(msg)
    return paths[-1]


# --- Running a script ---


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRequest:
    """A Python script, its arguments, and the folder for its log and report."""

    script: Path
    arguments: tuple[str, ...] = ()
    directory: Path | None = None
    name: str = ""
    log_only: bool = False  # save the log, write no report
    show_log: bool = False  # show the runtime's lines while the script runs


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptReport:
    """How a script ended, and its report."""

    folder: "MemoryFolder"
    exit_code: int  # of the script
    page: Path | None = None  # None: only the log was wanted, or it has nothing to show
    problems: tuple[str, ...] = ()  # why there is no page
    is_log_lost: bool = False  # the log could not be written; the script ran to its end all the same


def run_memory(request: ScriptRequest, progress: Progress = SILENT, *, watch: WatchReading = unwatched) -> ScriptReport:
    """Run a script with full runtime logging, save the log, and write its report.

    The script runs in a process of its own; its exit code and a log without memory lines are results. Raises InputError
    for a script that cannot be started.
    """
    from torchstone.memory.folder import claimed_folder, folder_for
    from torchstone.memory.run_script import require_script, run_script

    require_script(request.script)
    folder = claimed_folder(folder_for(request.script, directory=request.directory, name=request.name))
    progress.note(f"executing {request.script} ...")
    ran = run_script(request.script, request.arguments, log=folder.log, show_log=request.show_log)
    if ran.problem:
        return ScriptReport(folder=folder, exit_code=ran.exit_code, problems=(ran.problem,), is_log_lost=True)
    _note_written(ran.log, progress)
    if request.log_only:
        return ScriptReport(folder=folder, exit_code=ran.exit_code)
    problems: tuple[str, ...] = ()
    page = None
    try:
        problems = _report_script(folder, progress, watch)
        page = None if problems else folder.page
    except (InputError, OSError) as error:  # the report fails, never the script
        problems = (str(error),)
    return ScriptReport(folder=folder, exit_code=ran.exit_code, page=page, problems=problems)


def _report_script(folder: "MemoryFolder", progress: Progress, watch: WatchReading) -> tuple[str, ...]:
    """Write documents and page of a captured log; returns the reasons where it has no memory lines."""
    from torchstone.memory.out_of_memory import has_memory

    study = read_memory(LogRequest(source=str(folder.log)), watch=watch)
    if not has_memory(study.timeline):
        return warnings_of(study) or ("the log has no memory lines",)
    _write_documents(folder, study, progress, log=folder.log)
    write_page(folder.path, folder.page, progress)
    return ()


# --- Cutting a log ---


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRunRequest:
    """A long log, and the file for its last complete pass."""

    log: Path
    output: Path | None = None  # None: NAME_last_run.log beside the log
    force: bool = False  # replace the file
    rank: str = ""
    dialect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortLog:
    """The short log, its number of lines, and the run that it was cut from."""

    path: Path
    last_run: "LastRun"
    lines: int


def _without_suffixes(name: str) -> str:
    for suffix in (".gz", ".xz", ".zst", ".log"):
        name = name.removesuffix(suffix)
    return name


def cut_last_run(request: LastRunRequest, *, watch: WatchReading = unwatched) -> ShortLog:
    """Copy the last complete pass of each graph to a file of its own; the log is not changed.

    Raises InputError where the file exists, unless `force`.
    """
    from torchstone.memory.read_log import choose_last_run, write_last_run

    stem = _without_suffixes(request.log.name)
    target = request.output or request.log.with_name(f"{stem}_last_run.log")
    if target.exists() and not request.force:
        msg = f"{target} already exists; give --force to replace it, or another --output"
        raise InputError(msg)
    log = LogRequest(source=str(request.log), rank=request.rank, dialect=request.dialect)
    timeline = _read(log, watch)
    last = choose_last_run(timeline)
    lines = write_last_run(request.log, last, target, rank=timeline.evidence.rank)
    return ShortLog(path=target, last_run=last, lines=lines)

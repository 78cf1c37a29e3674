"""torchstone memory: analyze device memory from a runtime log."""

import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from shlex import join, quote

import click

from torchstone.cli.ci_output import CiOptions, ci_options, write_for_ci
from torchstone.cli.options import F, Session, common_options, json_option, request_from, with_options
from torchstone.cli.progress import TerminalProgress
from torchstone.cli.terminal import REDRAWN
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.units import many, read_bytes
from torchstone.workflows.memory import LogRequest, OnBytes, ReportRequest, ScriptReport, WatchReading


def _size(_ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A number of bytes as people write it."""
    found = None if value is None else read_bytes(value)
    if value is not None and found is None:
        msg = f"{value!r} is not a size; write one such as 11GiB or 512MiB"
        raise click.BadParameter(msg, param=param)
    return found


def _percent(_ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A percentage, with or without its sign."""
    if value is None:
        return None
    try:
        found = float(value.removesuffix("%"))
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        msg = f"{value!r} is not a percentage of zero or more; write one such as 1%"
        raise click.BadParameter(msg, param=param)
    return found


_BETWEEN_S = 0.2
_QUIET_FOR_S = 1.0


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Analyze device memory from a runtime log: which op used how much, why, and what to do.

    Reads logs of Tenstorrent's runtime, graph reports and databases of ttnn, and memory snapshots and profiler traces
    of PyTorch. `run` makes a log from a script, `show` prints the analysis, `parse` and `report` write JSON and an HTML
    page, `last-run` shortens a long log, `compare` compares runs, `history` lists the runs kept under a name, `check`
    holds a run against a budget. LOG is such a file, compressed with gzip, xz or zstd or not; most commands also take a
    report folder, or the name of a report in ~/.ttmem/reports. An earlier report is never overwritten: the next one is
    NAME-2.
    """


def log_options(function: F) -> F:
    """Add --rank and --dialect."""
    rank = click.option(
        "--rank",
        default="",
        metavar="R,D",
        help="One process of a multi-host log, such as 1,0; `show` takes `all`, too.  [default: the lowest]",
    )
    dialect = click.option("--dialect", default="", metavar="NAME", help="The log format.  [default: detected]")
    return with_options(function, (rank, dialect))


def folder_options(function: F) -> F:
    """Add --dir and --name."""
    folder = click.option(
        "--dir",
        "directory",
        type=click.Path(path_type=Path, file_okay=False),
        help="Write here instead of ~/.ttmem/reports/NAME ($TTMEM_HOME/reports/NAME).",
    )
    name = click.option(
        "--name", default="", metavar="NAME", help="The report name.  [default: from the log or script]"
    )
    return with_options(function, (folder, name))


class ReadingProgress:
    """Bytes read so far, on stderr, for logs that take longer than a second."""

    def __init__(self, session: Session, source: str) -> None:
        path = Path(source)
        self._size_bytes = path.stat().st_size if path.is_file() else 0
        self._shown = not session.quiet and sys.stderr.isatty() and "CI" not in os.environ
        self._began = self._last = time.monotonic()
        self._drawn = False

    def __call__(self, done_bytes: int) -> None:
        """Show how far the reading is."""
        now = time.monotonic()
        if not self._shown or now - self._began < _QUIET_FOR_S or now - self._last < _BETWEEN_S:
            return
        self._last, self._drawn = now, True
        percent = f"{100 * done_bytes / self._size_bytes:3.0f}%" if self._size_bytes else ""
        speed = done_bytes / (now - self._began) / 1e6
        click.echo(f"{REDRAWN}reading the log {percent} {speed:.0f} MB/s", err=True, nl=False)

    def clear(self) -> None:
        """Remove the line again."""
        if self._drawn:
            click.echo(REDRAWN, err=True, nl=False)


def watching(session: Session) -> WatchReading:
    """Show how far a log is read, in a terminal."""

    @contextmanager
    def watch(source: str) -> Iterator[OnBytes]:
        progress = ReadingProgress(session, source)
        try:
            yield progress
        finally:
            progress.clear()

    def opened(source: str) -> AbstractContextManager[OnBytes | None]:
        return watch(source)

    return opened


@command.command(
    short_help="Run a script and report its memory.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@folder_options
@click.option("--log-only", is_flag=True, help="Save the log without a report.")
@click.option("--show-log", is_flag=True, help="Show the runtime's lines, too, while the script runs.")
@common_options
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.pass_obj
def run(session: Session, /, **fields: object) -> int:
    """Run SCRIPT with ARGS so that the runtime logs everything, then write the report.

    The output of the script is shown as it comes, the log is saved beside the report, and the exit code is the script's
    own. The script always runs to its end, even if its log cannot be written. If the log has no memory lines, the
    missing variable or build flag is named, and the exit code is 2 where the script's is 0.
    """
    from torchstone.workflows.memory import ScriptRequest, run_memory

    report = run_memory(request_from(ScriptRequest, fields), TerminalProgress(session), watch=watching(session))
    return print_script_report(session, report)


def print_script_report(session: Session, report: ScriptReport) -> int:
    """Print the page of a script, or why there is none; gives the exit code."""
    progress = TerminalProgress(session)
    for problem in report.problems:
        click.echo(f"no report: {problem}", err=True)
    if report.page is not None:
        click.echo(report.page)
        progress.note(f"next: torchstone memory show {quote(str(report.folder.path))}")
    elif not report.problems:
        progress.note(f"next: torchstone memory show {quote(str(report.folder.log))}")
        return report.exit_code
    if report.exit_code:
        progress.note(f"the script ended with exit code {report.exit_code}")
    if report.is_log_lost:
        return report.exit_code
    return report.exit_code or (EXIT_BAD_INPUT if report.page is None else EXIT_FINE)


@command.command(short_help="Print the analysis of a log.")
@click.argument("source", metavar="LOG")
@click.option("--top", default=10, show_default=True, type=click.IntRange(min=1), help="Rows of each table.")
@click.option("--op", type=click.IntRange(min=0), metavar="INDEX", help="Show the tensors live before this op instead.")
@log_options
@json_option
@common_options
@click.pass_obj
def show(session: Session, /, *, top: int, op: int | None, as_json: bool, **fields: str) -> None:
    """Show the peak of each memory in LOG, live tensors, growth, the cost of padding, and why memory ran out."""
    import msgspec

    from torchstone.memory.documents import op_document, show_document
    from torchstone.report.memory_text import memory_text, op_text
    from torchstone.report.text import coloured, plain
    from torchstone.workflows.memory import read_memory, read_op, warnings_of

    log = request_from(LogRequest, fields)
    watch = watching(session)
    if log.rank == "all":
        _show_ranks(session, log, as_json=as_json)
        return
    study = read_memory(log, watch=watch) if op is None else read_op(log, op, watch=watch)
    paint = coloured if session.uses_color else plain
    if as_json:
        document = show_document(study) if op is None else op_document(study, op)
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=1))
        for warning in warnings_of(study):
            TerminalProgress(session).note(f"warning: {warning}")
    elif op is not None:
        click.echo(op_text(study, op, top=top, paint=paint))
    else:
        click.echo(memory_text(study, top=top, paint=paint))


def _show_ranks(session: Session, log: LogRequest, *, as_json: bool) -> None:
    """Print the peaks of all processes side by side, each with its difference from the one above."""
    import msgspec

    from torchstone.memory.documents import runs_document
    from torchstone.report.memory_text import runs_text
    from torchstone.report.text import coloured, plain
    from torchstone.workflows.memory import read_ranks

    found = read_ranks(log, watch=watching(session))
    if as_json:
        names = [(rank, "") for rank, _ in found]
        click.echo(msgspec.json.encode(runs_document([study for _, study in found], names=names)))
        return
    rows = [(f"rank {rank}" if rank else "no rank", study) for rank, study in found]
    click.echo(runs_text(rows, paint=coloured if session.uses_color else plain))


@command.command(short_help="Write the JSON documents of a log.")
@click.argument("source", metavar="LOG", type=click.Path())
@folder_options
@log_options
@json_option
@common_options
@click.pass_obj
def parse(session: Session, /, *, as_json: bool, **fields: object) -> None:
    """Read LOG and write NAME_memory.json, NAME_operations.json and NAME_inputs_registry.json.

    The nth operation of one document is the nth of the other. From a damaged log everything readable is written, with a
    warning; a file without runtime lines is an error.
    """
    import msgspec

    from torchstone.memory.documents import show_document
    from torchstone.report.memory_text import head_text
    from torchstone.workflows.memory import parse_memory

    progress = TerminalProgress(session)
    parsed = parse_memory(request_from(ReportRequest, fields), progress, watch=watching(session))
    if as_json:
        click.echo(msgspec.json.encode(show_document(parsed.study) | {"directory": str(parsed.folder.path)}))
    else:
        click.echo(head_text(parsed.study))
    progress.note(f"next: torchstone memory report {quote(str(parsed.folder.path))}")


@command.command(short_help="Write the HTML page of a log or folder.")
@click.argument("source", metavar="LOG|DIR")
@folder_options
@log_options
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@common_options
@click.pass_obj
def report(session: Session, /, *, open_page: bool, **fields: object) -> None:
    """Write NAME_report.html: memory over time, peaks, padding, weights, in one file that works offline.

    A folder made by `memory parse` is shown as it is, unless --dir or --name is given; a log is parsed first.
    """
    from torchstone.workflows.memory import report_memory

    progress = TerminalProgress(session)
    folder = report_memory(request_from(ReportRequest, fields), progress, watch=watching(session))
    click.echo(folder.page)
    progress.note(f"next: open it in a browser, or `ttmem serve` to see all reports of {folder.path.parent}")
    if open_page:
        click.launch(folder.page.resolve().as_uri())


@command.command("last-run", short_help="Shorten a long log.")
@click.argument("log", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write.  [default: NAME_last_run.log beside the log]",
)
@click.option("-f", "--force", is_flag=True, help="Replace the file if it exists.")
@log_options
@common_options
@click.pass_obj
def last_run(session: Session, /, **fields: object) -> None:
    """Copy the last complete pass of each graph in LOG to a file of its own; LOG stays as it is.

    Const-eval programs run only in a first pass and are kept from there. Where the runtime replays traces, the pass
    that captured is taken, because replays log no ops.
    """
    from torchstone.workflows.memory import LastRunRequest, cut_last_run

    progress = TerminalProgress(session)
    short = cut_last_run(request_from(LastRunRequest, fields), watch=watching(session))
    click.echo(short.path)
    for part in short.last_run.parts:
        progress.note(f"kept lines {part.first_line} to {part.last_line}: {part.what}")
    for note in short.last_run.notes:
        progress.note(f"warning: {note}")
    progress.note(f"{many(short.lines, 'line')}; next: torchstone memory show {quote(str(short.path))}")


@command.command(short_help="Compare runs.")
@click.argument("sources", metavar="A B...", nargs=-1, required=True)
@click.option("--memory", default="", metavar="NAME", help="The memory to compare effects in.  [default: DRAM]")
@click.option("--top", default=20, show_default=True, type=click.IntRange(min=1), help="Rows of the table.")
@click.option(
    "--max-growth",
    callback=_percent,
    metavar="PERCENT",
    help="Exit with 1 if a peak of the last run is more than this above A's.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write comparison_report.html to this folder, too.",
)
@log_options
@json_option
@common_options
@click.pass_obj
def compare(session: Session, /, *, top: int, as_json: bool, **fields: object) -> int:
    """Align the ops of runs (logs or reports) with those of A: where they begin to differ, and the effect on memory.

    With more than two runs, their peaks are shown side by side.
    """
    import msgspec

    from torchstone.memory.documents import comparison_document, runs_document
    from torchstone.report.memory_text import comparison_text, runs_text
    from torchstone.report.text import coloured, plain
    from torchstone.workflows.memory import CompareRequest, compare_memory

    result = compare_memory(request_from(CompareRequest, fields), TerminalProgress(session), watch=watching(session))
    ours, *others = result.runs
    paint = coloured if session.uses_color else plain
    if as_json and len(others) == 1:
        click.echo(msgspec.json.encode(comparison_document(result.comparisons[0], ours, others[0])))
    elif as_json:
        click.echo(msgspec.json.encode(runs_document(result.runs, result.comparisons)))
    elif len(others) == 1:
        click.echo(comparison_text(ours, others[0], result.comparisons[0], top=top, paint=paint))
    else:
        click.echo(runs_text([(one.timeline.source, one) for one in result.runs], paint=paint))
    for line in result.growth:
        click.echo(line, err=True)
    return EXIT_FINDINGS if result.growth else EXIT_FINE


@command.command(short_help="Show the runs kept under a name.")
@click.argument("name")
@json_option
@common_options
@click.pass_obj
def history(session: Session, *, name: str, as_json: bool) -> None:
    """Show the peaks of the reports NAME, NAME-2, ... in the place of reports, oldest first."""
    import msgspec

    from torchstone.memory.documents import runs_document
    from torchstone.report.memory_text import runs_text
    from torchstone.report.text import coloured, plain
    from torchstone.workflows.memory import memory_history

    runs = memory_history(name)
    if as_json:
        names = [(one.folder.name, one.written.isoformat(timespec="seconds")) for one in runs]
        click.echo(msgspec.json.encode(runs_document([one.study for one in runs], names=names)))
        return
    paint = coloured if session.uses_color else plain
    rows = [(f"{one.folder.name}  {one.written:%Y-%m-%d %H:%M}", one.study) for one in runs]
    click.echo(runs_text(rows, paint=paint))
    if len(runs) > 1:
        last_two = join(one.folder.name for one in runs[-2:])
        TerminalProgress(session).note(f"next: torchstone memory compare {last_two}")


@command.command(short_help="Check the peaks of a run against a budget.")
@click.argument("source", metavar="LOG")
@click.option("--max-dram", callback=_size, metavar="SIZE", help="Limit of the DRAM peak on the device, such as 11GiB.")
@click.option("--max-l1", callback=_size, metavar="SIZE", help="Limit of the L1 peak over all cores, such as 60MiB.")
@click.option(
    "--max-growth", callback=_percent, metavar="PERCENT", help="Limit of the growth of each peak, such as 1%."
)
@click.option(
    "--against",
    default="",
    metavar="RUN",
    help="The log or report to measure growth against.  [default: the report before this one]",
)
@log_options
@ci_options
@json_option
@common_options
@click.pass_obj
def check(
    session: Session, /, ci: CiOptions, *, max_dram: int | None, max_l1: int | None, as_json: bool, **fields: object
) -> int:
    """Exit with 1 if a peak of LOG is over its limit, or an allocation failed: a memory budget for CI.

    Sizes are those of a whole device: all banks of DRAM, all cores of L1.
    """
    import msgspec

    from torchstone.report.checks_ci import budget_for_ci
    from torchstone.report.memory_text import runs_text
    from torchstone.workflows.memory import BudgetRequest, check_memory

    limits = tuple((name, size) for name, size in (("DRAM", max_dram), ("L1", max_l1)) if size is not None)
    result = check_memory(request_from(BudgetRequest, {**fields, "max_bytes": limits}), watch=watching(session))
    if as_json:
        document = {
            "schema": "torchstone/memory-check/1",
            "passed": not result.violations,
            "violations": result.violations,
            "against": result.against or None,
        }
        click.echo(msgspec.json.encode(document))
    else:
        click.echo(runs_text([(result.study.timeline.source, result.study)]))
        for line in result.violations:
            click.echo(line)
        if not result.violations:
            click.echo("within the budget")
    write_for_ci(ci, lambda: budget_for_ci(result.study.timeline.source, result.checks))
    return EXIT_FINDINGS if result.violations else EXIT_FINE

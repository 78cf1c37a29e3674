"""torchstone sweep: generate tests from traced configurations, run them on a backend, inspect the results."""

from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from torchstone.cli.ci_output import CiOptions, write_file, write_for_ci
from torchstone.cli.database_options import command_line, db_option
from torchstone.cli.options import (
    F,
    Option,
    Session,
    common_options,
    json_option,
    options_as,
    profile_option,
    request_from,
    with_options,
)
from torchstone.cli.progress import ResultCounter, TerminalProgress
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE
from torchstone.units import many
from torchstone.workflows.executors import ExecutorKind, ExecutorRequest
from torchstone.workflows.sweep_generate import DEFAULT_FOLDER, DEFAULT_MODULES, DEFAULT_ROLES, ROLES

if TYPE_CHECKING:
    from torchstone.record.vector import SweepHistory, SweepRun

GENERATE_SCHEMA = "torchstone/sweep_generate/1"
COMPARE_SCHEMA = "torchstone/sweep_comparison/1"
HISTORY_SCHEMA = "torchstone/sweep_trends/1"
RETRACE_SCHEMA = "torchstone/sweep_retrace/1"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Generate tests from traced configurations, run them on a backend, and inspect the results.

    `generate` makes vectors (one test each) from the database or from a sweep module, `run` runs each vector in a
    process of its own, `report` shows results and their history, `compare` finds regressions between two runs, `repro`
    writes one failure as a script, and `retrace` checks that a sweep executed the calls that were traced. These
    commands work in one folder (--dir). `shim` puts torchstone's loader in the place of tt-metal's.
    """


_FILE = click.Path(path_type=Path, dir_okay=False)


def _folder_option(function: F) -> F:
    return click.option(
        "--dir",
        "folder",
        type=click.Path(path_type=Path, file_okay=False),
        default=DEFAULT_FOLDER,
        show_default=True,
        help="The folder of this sweep: vectors, runs and reports.",
    )(function)


def _runs_db_option(function: F) -> F:
    return click.option(
        "--db", "database", metavar="FILE|URL", help="Read the runs from this database instead of the folder."
    )(function)


def _roles(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


@command.command(short_help="Generate vectors from the database or from a sweep module.")
@click.option("--op", metavar="OP", help="From the configurations of one op, such as aten.mm.default.")
@click.option("--model", metavar="MODEL", help="From the configurations of a traced model, test or script.")
@click.option("--all", "all_ops", is_flag=True, help="From all configurations of the database.")
@click.option(
    "--module-name",
    metavar="FILE|NAME",
    help="From a sweep module: a Python file, or its name below --modules, such as eltwise.add.",
)
@click.option(
    "--modules",
    "modules_folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_MODULES,
    show_default=True,
    help="The folder of sweep modules.",
)
@click.option(
    "--python", metavar="PATH", default="", help="The interpreter that imports the sweep module, such as one with ttnn."
)
@click.option(
    "--suite",
    "--suite-name",
    "suite",
    metavar="NAME",
    help="Only this suite of a sweep module; otherwise the name of the new suite. `opinfo` takes the samples of "
    "torch's own test database, of one op (--op), of the ops that a traced model calls (--model), or of all (--all). "
    "`chains` takes chains of ops that feed each other, as `torchstone trace --chains` recorded them.",
)
@click.option("--budget", metavar="TIME", help="Choose vectors that run in about 90s, 10m or 1h, for most coverage.")
@click.option("--neighbours", is_flag=True, help="Add variations: other sizes, element types and strides.")
@click.option(
    "--roles",
    metavar="NAMES",
    default=",".join(DEFAULT_ROLES),
    show_default=True,
    callback=_roles,
    help=f"Roles of the ops to include: {', '.join(ROLES)}.",
)
@click.option("--allow-empty", is_flag=True, help="Exit with 0 even if there is no valid vector.")
@_folder_option
@db_option
@json_option
@common_options
@click.pass_obj
def generate(session: Session, /, *, allow_empty: bool, as_json: bool, **fields: object) -> int:
    """Generate vectors: one test for each distinct configuration of an op.

    Choose the source with one of --op, --model, --all and --module-name. A vector is named after its configuration, so
    the same call has the same name in every database. A call that cannot be run here is kept and marked as not valid,
    with the reason. The exit code is 1 if there is no valid vector, unless --allow-empty is given.
    """
    from torchstone.report.json_document import json_document
    from torchstone.report.sweep_text import generate_text
    from torchstone.workflows.sweep_generate import GenerateRequest, generate_vectors

    request = request_from(GenerateRequest, fields)
    progress = TerminalProgress(session)
    result = generate_vectors(request, progress)
    summary = result.summary
    click.echo(json_document(GENERATE_SCHEMA, summary) if as_json else generate_text(summary))
    progress.note(f"{many(len(result.changed_files), 'file')} changed in {request.folder / 'vectors'}")
    backend = "ttnn" if any(vector.role == "ttnn" for vector in result.vectors) else "eager"
    progress.note(f"next: torchstone sweep run --dir {quote(str(request.folder))} --backend {backend}")
    return EXIT_FINE if summary.valid or allow_empty else EXIT_FINDINGS


_EXECUTOR_OPTIONS: tuple[Option, ...] = (
    click.option(
        "--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Vectors to run in parallel."
    ),
    click.option(
        "--executor",
        "kind",
        type=click.Choice([kind.value for kind in ExecutorKind]),
        default=ExecutorKind.LOCAL.value,
        show_default=True,
        help="Run on this machine, or on a Ray cluster.",
    ),
    click.option("--address", metavar="ADDRESS", help="The Ray cluster.  [default: Ray starts one here]"),
    click.option("--tasks-per-child", type=click.IntRange(min=1), default=64, show_default=True, hidden=True),
)


def _executor_options(function: F) -> F:
    """Add --jobs, --executor and --address; the command gets one `executor`."""

    @wraps(function)
    def gather(
        *args: object, kind: str, address: str | None, jobs: int, tasks_per_child: int, **rest: object
    ) -> object:
        executor = ExecutorRequest(kind=ExecutorKind(kind), address=address, jobs=jobs, tasks_per_child=tasks_per_child)
        return function(*args, executor=executor, **rest)

    return with_options(gather, _EXECUTOR_OPTIONS)  # type: ignore[return-value]  # click passes what the decorators name


def _backend_options(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> dict[str, object]:
    from torchstone.backends.registry import read_options

    return read_options(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutcomeOptions:
    """What becomes of the results: files for CI, and the exit code."""

    strict: bool
    junit: Path | None
    sarif: Path | None
    github: bool


@command.command(short_help="Run vectors on a backend.")
@click.option("--backend", default="eager", show_default=True, metavar="NAME", help="The backend to run on.")
@click.option(
    "--backend-option",
    "backend_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_backend_options,
    help="An option of the backend.",
)
@click.option("--python", metavar="PATH", default="", help="The interpreter of the backend's environment.")
@click.option(
    "--op",
    "--module-name",
    "modules",
    multiple=True,
    metavar="NAME",
    help="Only this op or sweep module, or all whose dotted names begin with NAME.",
)
@click.option("--suite", "--suite-name", "suites", multiple=True, metavar="NAME", help="Only this suite.")
@click.option("--vector-id", default="", metavar="ID", help="Only this vector; the beginning of its id is enough.")
@_executor_options
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Timeout per vector.  [default: 30]",
)
@click.option("--memory-limit", metavar="SIZE", help="Memory per vector, such as 2GiB.  [default: a fair share]")
@click.option(
    "--retries", type=click.IntRange(min=0), default=1, show_default=True, help="Retries after a crash or a hang."
)
@click.option("--retry-all", is_flag=True, help="Retry every failure, to find flaky vectors.")
@click.option("--perf", is_flag=True, help="Measure warm runs, by turns with eager PyTorch.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Write the results as JUnit XML.")
@click.option("--sarif", type=_FILE, metavar="FILE", help="Write the failures as SARIF, which code scanning shows.")
@click.option("--github", is_flag=True, help="Write annotations and a step summary for GitHub Actions.")
@click.option("--perf-runs", type=click.IntRange(min=1), default=20, show_default=True, help="Samples of each round.")
@click.option(
    "--perf-rounds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Processes in which each vector is timed.",
)
@profile_option
@click.option("--pcc", type=click.FloatRange(0, 1), help="Minimum PCC to pass; decides in place of the noise.")
@click.option("--strict", is_flag=True, help="Exit with 1 also when a vector is suspicious.")
@click.option("--rtol", type=click.FloatRange(min=0), help="Relative tolerance where there is no PCC.")
@click.option("--atol", type=click.FloatRange(min=0), help="Absolute tolerance where there is no PCC.")
@click.option("--backward", is_flag=True, help="Judge the gradients of each vector, too.")
@click.option("--strict-stride", is_flag=True, help="Require the strides of eager PyTorch, too.")
@click.option(
    "--reset-command", metavar="COMMAND", default="", help="Command that resets the device when it stops working."
)
@click.option("--dry-run", is_flag=True, help="List the vectors that would run.")
@click.option("--resume", is_flag=True, help="Resume the latest interrupted run; start one if there is none.")
@click.option("--allow-empty", is_flag=True, help="Exit with 0 even if there is nothing to run.")
@_folder_option
@db_option
@options_as(_OutcomeOptions, "outcome")
@json_option
@common_options
@click.pass_obj
def run(
    session: Session,
    /,
    *,
    dry_run: bool,
    allow_empty: bool,
    as_json: bool,
    outcome: _OutcomeOptions,
    **fields: object,
) -> int:
    """Run vectors on a backend and compare each result with eager PyTorch on the CPU.

    A crash, a hang or too much memory ends one vector, never the run. Every result is on disk the moment it exists;
    after a kill or Ctrl-C, use --resume. The exit code is 1 if a vector failed that is not quarantined, or if there was
    nothing to run.
    """
    from torchstone.report.sweep_text import vectors_text
    from torchstone.workflows.sweep_run import RunRequest, has_failed, plan_sweep, run_sweep

    request = request_from(RunRequest, {"command": command_line(), **fields})
    plan = plan_sweep(request)
    progress = TerminalProgress(session)
    if request.resume and plan.interrupted is None:
        progress.note(f"no run in {request.folder} was interrupted; a new one starts")
    if dry_run:
        click.echo(vectors_text(plan.vectors))
        return EXIT_FINE
    if plan.is_empty:
        progress.note(f"there is nothing to run in {request.folder}; `torchstone sweep generate` makes vectors")
        return EXIT_FINE if allow_empty else EXIT_FINDINGS
    with ResultCounter(len(plan.vectors), session) as counter:
        finished = run_sweep(request, progress, plan=plan, on_result=counter.count)
    _print_run(session, finished, request.folder, as_json=as_json)
    failed = has_failed(finished) or bool(outcome.strict and finished.suspicious)
    _write_results(finished, outcome, failed=failed)
    return EXIT_FINDINGS if failed else EXIT_FINE


def _write_results(finished: "SweepRun", outcome: _OutcomeOptions, *, failed: bool) -> None:
    from torchstone.report.sweep_ci import sarif_json, sweep_for_ci

    if outcome.sarif is not None:
        write_file(outcome.sarif, "--sarif", sarif_json(finished))
    write_for_ci(CiOptions(junit=outcome.junit, github=outcome.github), lambda: sweep_for_ci(finished, failed=failed))


def _print_run(session: Session, finished: "SweepRun", folder: Path, *, as_json: bool) -> None:
    from torchstone.record.vector import FAILED, SweepRun
    from torchstone.report.json_document import json_document
    from torchstone.report.sweep_text import run_text, short_id
    from torchstone.report.text import coloured, plain

    if as_json:
        counts = {
            "counts": finished.counts, "outcomes": finished.outcomes, "suspicious": len(finished.suspicious)
        }  # fmt: skip
        click.echo(json_document(SweepRun.schema.name, finished, counts))
        return
    click.echo(run_text(finished, paint=coloured if session.uses_color else plain))
    progress = TerminalProgress(session)
    failed = next((one for one in finished.results if one.status in FAILED and one.configuration), None)
    if failed is not None:
        progress.note(f"next: torchstone sweep repro {short_id(failed.id)} --dir {quote(str(folder))}")
    progress.note(f"next: torchstone sweep report --dir {quote(str(folder))} --html")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReportOptions:
    name: str
    vector_id: str
    html: bool
    limit: int
    folder: Path
    database: str | None


@command.command(short_help="Show results and their history.")
@click.argument("name", required=False, default="last", metavar="[RUN]")
@click.option("--vector-id", default="", metavar="ID", help="Show the history of one vector.")
@click.option("--html", is_flag=True, help="Write report.html to the folder: history, causes, backends side by side.")
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="Number of causes to show.")
@_folder_option
@_runs_db_option
@json_option
@common_options
@click.pass_obj
def report(session: Session, /, *, as_json: bool, **fields: object) -> None:
    """Show RUN and how backends compare.

    RUN is the beginning of a run's name; without it the newest run is shown. With --db the runs are read from a
    database, otherwise from the folder.
    """
    from torchstone.record.codec import encode
    from torchstone.workflows.sweep_results import read_history, write_history

    options = request_from(_ReportOptions, fields)
    history = read_history(options.folder, options.database)
    if options.html:
        progress = TerminalProgress(session)
        progress.note(f"wrote {write_history(history, options.folder)}")
        progress.note(f"next: torchstone serve {quote(str(options.folder))}")
    if options.vector_id:
        _print_vector(history, options.vector_id, as_json=as_json)
    elif as_json:
        click.echo(encode(history))
    else:
        _print_history(session, history, options)


def _print_vector(history: "SweepHistory", vector_id: str, *, as_json: bool) -> None:
    import msgspec

    from torchstone.report.sweep_text import vector_text
    from torchstone.workflows.sweep_results import vector_in_history

    found = vector_in_history(history, vector_id)
    if as_json:
        rows = [{"run": run.run, "backend": run.backend, "result": result} for run, result in found]
        click.echo(msgspec.json.encode(rows))
    else:
        click.echo(vector_text(found, history.texts.get(found[0][1].id, "")))


def _print_history(session: Session, history: "SweepHistory", options: _ReportOptions) -> None:
    from torchstone.report.sweep_text import run_text, side_by_side_text
    from torchstone.report.text import coloured, plain
    from torchstone.workflows.sweep_results import run_in_history

    paint = coloured if session.uses_color else plain
    shown = run_in_history(history, options.name, origin=str(options.folder))
    parts = [run_text(shown, limit=options.limit, paint=paint)]
    if len(history.newest) > 1:
        parts.append(side_by_side_text(history, limit=options.limit, paint=paint))
    click.echo("\n\n".join(parts))


@command.command(short_help="Show since which commit vectors fail, and flaky ones.")
@_folder_option
@_runs_db_option
@json_option
@common_options
@click.pass_obj
def history(_session: Session, /, *, as_json: bool, **fields: object) -> int:
    """Show since which run and commit each failing vector fails, vectors that pass and fail by turns, and trends.

    The runs are those of the folder, or of a database that keeps them over many commits (--db). The exit code is 1 if a
    vector fails in the newest run that has it.
    """
    from torchstone.report.json_document import json_document
    from torchstone.report.sweep_text import history_text
    from torchstone.workflows.sweep_results import HistoryRequest, summarize_history

    found = summarize_history(request_from(HistoryRequest, fields))
    click.echo(json_document(HISTORY_SCHEMA, found) if as_json else history_text(found))
    return EXIT_FINDINGS if found.first_bad else EXIT_FINE


@command.command(short_help="List, add or remove known failures.")
@click.argument("vector", required=False, default="", metavar="[ID|OP]")
@click.option("--reason", default="", metavar="TEXT", help="Why it is quarantined; required to add one.")
@click.option("--backend", default="", metavar="NAME", help="Only on this backend.")
@click.option("--remove", is_flag=True, help="Remove it from the list.")
@_folder_option
@common_options
@click.pass_obj
def quarantine(_session: Session, /, **fields: object) -> None:
    """List the known failures, or add or remove one: the beginning of a vector's id, or an op.

    Quarantined vectors run and are reported, but do not fail a run. The list is quarantine.json in the folder.
    """
    from torchstone.workflows.sweep_results import QuarantineRequest, change_quarantine

    for entry in change_quarantine(request_from(QuarantineRequest, fields)).entries:
        where = f" on {entry.backend}" if entry.backend else ""
        click.echo(f"{entry.vector}{where}: {entry.reason} (since {entry.added})")


@command.command(short_help="Find regressions between two runs.")
@click.argument("first", metavar="RUN1")
@click.argument("second", metavar="RUN2")
@click.option(
    "--slower-by",
    type=click.FloatRange(min=1),
    default=1.15,
    show_default=True,
    metavar="FACTOR",
    help="An op that takes FACTOR times as long, beyond chance, is a regression, too.",
)
@click.option("--perf", is_flag=True, help="Measure the environments of both runs again, by turns.")
@click.option(
    "--perf-rounds",
    type=click.IntRange(min=3),
    default=7,
    show_default=True,
    metavar="N",
    help="Rounds of --perf, each in new processes.",
)
@_folder_option
@_runs_db_option
@json_option
@common_options
@click.pass_obj
def compare(session: Session, /, *, as_json: bool, **fields: object) -> int:
    """Compare RUN1 with RUN2: new failures, fixed vectors, slower vectors.

    A run is the beginning of its name, `last`, or the folder of a run elsewhere; with --db it is a run that the
    database keeps. Times are compared where both runs were made with --perf, as ratios to eager PyTorch in the same
    process, for each op and each configuration; a difference counts only if chance does not explain it. With --perf
    here, both environments are measured again by turns, which finds smaller differences. The exit code is 1 if
    something got worse.
    """
    from torchstone.report.json_document import json_document
    from torchstone.report.sweep_text import comparison_text
    from torchstone.workflows.sweep_results import CompareRequest, compare_sweeps

    found = compare_sweeps(request_from(CompareRequest, fields), TerminalProgress(session))
    document = json_document(COMPARE_SCHEMA, found, {"is_worse": found.is_worse})
    click.echo(document if as_json else comparison_text(found))
    return EXIT_FINDINGS if found.is_worse else EXIT_FINE


@command.command(short_help="Write one failure as a script.")
@click.argument("vector_id", metavar="ID")
@click.option("--run", default="", metavar="RUN", help="The run in which it failed.  [default: the newest]")
@click.option("--no-shrink", is_flag=True, help="Keep the original shapes.")
@click.option("--out", "output", type=_FILE, metavar="FILE",
              help="Write the script to this file.  [default: in repros/ of the folder]")  # fmt: skip
@_folder_option
@common_options
@click.pass_obj
def repro(session: Session, /, *, no_shrink: bool, **fields: object) -> int:
    """Write the failing vector ID as one standalone Python script that was seen to fail in an empty folder.

    A chain is cut to its shortest part that fails, and shapes are made smaller as long as the failure stays the same.
    The script generates its own inputs and needs torch
    alone, or also torchstone where only torchstone knows the backend. The exit code is 1, and nothing is written, if no
    script fails on its own.
    """
    from torchstone.workflows.sweep_repro import ReproRequest, write_repro

    progress = TerminalProgress(session)
    result = write_repro(request_from(ReproRequest, {"shrink": not no_shrink, **fields}), progress)
    smaller = f" -> {result.smaller}" if result.smaller is not None else ", not made smaller"
    if result.path is None:
        progress.note(f"no script was written: run on its own in an empty folder, it {result.ending}")
        return EXIT_FINDINGS
    click.echo(result.path)
    progress.note(f"{result.original}{smaller}")
    progress.note(f"it {result.ending}")
    return EXIT_FINE


@command.command("bisect", short_help="Find the first version of a backend in which a vector fails.")
@click.argument("vector_id", metavar="ID")
@click.option("--backend", required=True, metavar="NAME", help="The backend that all environments have.")
@click.option("--python", "pythons", multiple=True, metavar="PATH",
              help="Interpreter of an environment; repeat it, the oldest version of the backend first.")  # fmt: skip
@_folder_option
@json_option
@common_options
@click.pass_obj
def bisect_command(session: Session, /, *, as_json: bool, **fields: object) -> int:
    """Find the first environment in which the vector ID fails, by halving between a good and a bad one.

    Each environment that is tried is a run of the folder. The exit code is 0 if it fails nowhere, 1 otherwise.
    """
    from torchstone.cli.bisect_output import print_bisected
    from torchstone.workflows.sweep_bisect import BisectRequest, bisect_sweep

    found = bisect_sweep(request_from(BisectRequest, fields), TerminalProgress(session))
    return print_bisected(session, found, "torchstone/sweep_bisect/1", as_json=as_json)


@command.command(short_help="Check that a sweep executed the traced calls.")
@click.argument("run", required=False, default="last", metavar="[RUN]")
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Vectors to run in parallel.")
@_folder_option
@click.option("--db", "database", metavar="FILE|URL", help="Read the run and its configurations from this database.")
@json_option
@common_options
@click.pass_obj
def retrace(session: Session, /, *, as_json: bool, **fields: object) -> int:
    """Record what the vectors of RUN execute, and compare it with the traced configurations.

    Every vector that ran is a match, a diff (the op was called with different arguments) or missing (the op was never
    called). The exit code is 1 if one is a diff or missing.
    """
    from torchstone.report.json_document import json_document
    from torchstone.report.sweep_text import retrace_text
    from torchstone.workflows.sweep_results import RetraceRequest, retrace_sweep

    summary = retrace_sweep(request_from(RetraceRequest, fields), TerminalProgress(session))
    click.echo(json_document(RETRACE_SCHEMA, summary) if as_json else retrace_text(summary))
    return EXIT_FINDINGS if summary.has_differences else EXIT_FINE


@command.command("export", short_help="Write vectors and results as tt-metal's sweeps do.")
@click.argument("path", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--run", default="last", show_default=True, metavar="RUN", help="The run to export.")
@_folder_option
@common_options
@click.pass_obj
def export_files(_session: Session, /, **fields: object) -> None:
    """Write DIR/vectors_export (vectors of sweep modules) and DIR/results_export (one run) for tt-metal's tools."""
    from torchstone.workflows.sweep_results import ExchangeRequest, export_to_tt_metal

    for path in export_to_tt_metal(request_from(ExchangeRequest, fields)):
        click.echo(path)


@command.command("import", short_help="Read vectors or results of tt-metal's sweeps.")
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path, exists=True))
@_folder_option
@click.option("--db", "database", metavar="FILE|URL", help="Add the run to this database, too.")
@common_options
@click.pass_obj
def import_files(session: Session, /, **fields: object) -> None:
    """Add files of tt-metal's sweeps to this one: PATH is a file, or the folder vectors_export or results_export.

    Results become a run. Vectors keep their ids; where an op of ttnn has an op of torch that takes the same parameters,
    `sweep run` runs it, and `sweep export` writes the results under the same ids. The others say why not.
    """
    from torchstone.report.sweep_text import imported_text, run_text
    from torchstone.workflows.sweep_results import ExchangeRequest, import_from_tt_metal, import_vectors_from_tt_metal

    request = request_from(ExchangeRequest, fields)
    vectors = import_vectors_from_tt_metal(request)
    if vectors is None:
        click.echo(run_text(import_from_tt_metal(request)))
        return
    click.echo(imported_text(vectors))
    TerminalProgress(session).note(f"next: torchstone sweep run --dir {quote(str(request.folder))} --backend inductor")


@command.command(short_help="Put torchstone's loader in the place of tt-metal's.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@common_options
@click.pass_obj
def shim(session: Session, /, *, folder: Path) -> None:
    """Write tests/sweep_framework/master_config_loader.py and ..._v2.py below DIR.

    With DIR first on PYTHONPATH, sweep modules of tt-metal get their parameters from a master file or a database
    through torchstone, under tt-metal's own generator and runner, too. Nothing of tt-metal is changed.
    """
    from torchstone.compat.sweep_framework.shim import write_shim

    for path in write_shim(folder):
        click.echo(path)
    TerminalProgress(session).note(f"next: PYTHONPATH={quote(str(folder.resolve()))}:$PYTHONPATH python ...")

"""torchstone check: find which parts of a model run on a backend, and which ops fail."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.ci_output import CiOptions, ci_options, write_for_ci
from torchstone.cli.model_options import ModelRequest, model_options
from torchstone.cli.options import (
    DefaultCommandGroup,
    F,
    Option,
    Session,
    common_options,
    json_option,
    options_as,
    profile_option,
    with_options,
)
from torchstone.cli.progress import CheckProgress, TerminalProgress
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError
from torchstone.units import MOST_BYTES

if TYPE_CHECKING:
    from torchstone.check.settings import Settings
    from torchstone.record.check import CheckResult
    from torchstone.workflows.check import CheckRequest, ExportedIr
    from torchstone.workflows.check_matrix import MatrixRequest

_SIZE = re.compile(r"(?P<number>\d{1,99}(\.\d{1,99})?)\s*(?P<unit>[KMGT]i?B?|B)?", re.IGNORECASE)
_POWERS = {"B": 0, "K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """The options that name a backend and its environment."""

    backend: str | None
    interpreter: str | None
    pairs: tuple[str, ...]
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(BackendOptions):
    """The options of `check run`, as they were given."""

    oracle: str | None = None
    memory_limit: str | None = None
    jobs: int = 1
    profile: str = "default"
    strict: bool = False
    pcc: tuple[str, ...] = ()
    tolerances: Path | None = None
    granularity: str = "op"
    only: str = ""
    max_depth: int | None = None
    root_only: bool = False
    no_ir: bool = False
    every: bool = False
    all_ir: bool = False
    drift: bool = False
    reuse_results: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Where the results of `check run` go."""

    folder: Path | None
    resume: bool
    as_json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixOptions:
    """The options of `check matrix`, as they were given."""

    models: tuple[str, ...]
    backends: tuple[str, ...]
    pythons: tuple[str, ...]
    deadline_s: float
    folder: Path


def settings_from(options: RunOptions) -> "Settings":
    """The settings of the check that these options ask for."""
    from torchstone.backends.registry import read_options
    from torchstone.check.settings import Granularity, Settings, read_tolerances, shared_results
    from torchstone.record.task import Limits

    backend, chosen = _backend_of(options)
    return Settings(
        backend=backend,
        options={**read_options(options.pairs), **chosen},
        python=options.interpreter,
        jobs=options.jobs,
        limits=Limits(deadline_s=options.deadline_s, memory_bytes=read_size(options.memory_limit)),
        tolerances=read_tolerances(options.pcc, options.tolerances),
        profile=options.profile,
        granularity=Granularity.MODULE if options.root_only else Granularity(options.granularity),
        only=options.only,
        max_depth=0 if options.root_only else options.max_depth,
        exports_ir=not options.no_ir,
        every=options.every,
        ir_of_passing=options.all_ir and not options.no_ir,
        drift=options.drift,
        reuse=str(shared_results()) if options.reuse_results else "",
    )


def _backend_of(options: RunOptions) -> tuple[str, dict[str, object]]:
    """The backend that was asked for; a command that judges is one, too."""
    if (options.backend is None) == (options.oracle is None):
        msg = "give --backend NAME, or --check COMMAND to let a command judge; `torchstone backends` lists the names"
        raise InputError(msg)
    if options.oracle is not None:
        return "command", {"command": options.oracle, "folder": str(Path.cwd())}
    return options.backend or "", {}


def read_size(text: str | None) -> int | None:
    """A number of bytes: 4GiB, 512M, 1000000."""
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    unit = ((found and found["unit"]) or "B")[0].upper()
    size = 0 if found is None else int(float(found["number"]) * 1024 ** _POWERS[unit])
    if not 0 < size <= MOST_BYTES:
        msg = f"--memory-limit {text!r:.80} is not a size; write one such as 4GiB or 512MiB"
        raise InputError(msg)
    return size


@click.group(cls=DefaultCommandGroup, default="run", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Find which parts of a model run on a backend, and which ops fail.

    `torchstone check MODEL --backend B --dir D` (short for `check run`) runs the model, its modules and their ops on
    the backend, each in a process of its own, and compares the outputs with eager PyTorch. `compare D1 D2` shows the
    results of several backends side by side. `export-ir` writes the IR of one module.
    """


_RUN_OPTIONS: tuple[Option, ...] = (
    click.option("--backend", metavar="NAME", help="Backend to run on; `torchstone backends` lists them."),
    click.option("--check", "oracle", metavar="COMMAND",
                 help="Let a command judge in place of a backend: {program} in it is the exported program of a module "
                 "or group of ops (.pt2), {inputs} its inputs (.pt); exit code 0 says that it works."),
    click.option("--python", "interpreter", metavar="PATH",
                 help="Python interpreter of the environment that has the backend; it needs torch, not torchstone."),
    click.option("--backend-option", "pairs", multiple=True, metavar="NAME=VALUE",
                 help="Option of the backend; the value is JSON or text."),
    click.option("--timeout", "deadline_s", type=click.FloatRange(min=0.1), default=120.0, show_default=True,
                 metavar="SECONDS", help="Timeout per module or op."),
    click.option("--memory-limit", metavar="SIZE", help="Memory limit per module or op, such as 4GiB."),
    click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True,
                 help="Number of modules or ops to run in parallel."),
    click.option("--pcc", multiple=True, metavar="[NAME=]NUMBER",
                 help="Minimum PCC to pass, which then decides in place of the noise; NAME is a dtype "
                 "(bfloat16=0.98) or a pattern of module paths, classes or ops (layers.*=0.95)."),
    profile_option,
    click.option("--strict", is_flag=True, help="Exit with 1 also when an error is suspicious."),
    click.option("--tolerances", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.toml",
                 help="File with tolerances: pcc, relative_l2, rtol, atol, by [dtype.NAME] and [pattern.NAME]."),
    click.option("--granularity", type=click.Choice(["op", "module"]), default="op", show_default=True,
                 help="Localize failures to single ops, or stop at modules."),
    click.option("--only", default="", metavar="PATTERN", help="Start at the modules whose path or class matches."),
    click.option("--max-depth", type=click.IntRange(min=0), metavar="N", help="Maximum depth in the module tree."),
    click.option("--root-only", is_flag=True, help="Run only the whole model."),
    click.option("--every", is_flag=True,
                 help="Run every occurrence of what fails with its own values, not one that stands for all."),
    click.option("--ir", "all_ir", is_flag=True,
                 help="Export the IR of every module that runs, not only of those that fail."),
    click.option("--no-ir", is_flag=True, help="Do not export IR."),
    click.option("--drift", is_flag=True,
                 help="Measure how the error grows over the layers, also when the model passes; done without this "
                 "option where the values are wrong and no single op is."),
    click.option("--reuse", "reuse_results", is_flag=True,
                 help="Reuse results of identical modules and ops of other models, and store new ones, in the user's "
                 "cache."),
)  # fmt: skip


def _run_options(function: F) -> F:
    """Add the options of a check; the command gets one `options`."""
    return with_options(options_as(RunOptions)(function), _RUN_OPTIONS)


@command.command(name="run", short_help="Check a model on a backend.")
@model_options
@_run_options
@click.option("--resume", is_flag=True, help="Resume the interrupted run in --dir.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write results, IR, repro scripts and the report to this folder.",
)
@ci_options
@json_option
@options_as(OutputOptions, "output")
@common_options
@click.pass_obj
def run_command(
    session: Session, /, request: ModelRequest, options: RunOptions, output: OutputOptions, *, ci: CiOptions
) -> int:
    """Find which parts of MODEL run on a backend, and which ops fail.

    MODEL is any model that `torchstone inspect` accepts. It runs once on the CPU with real tensors. Its modules then
    run on the backend with the inputs and weights of that run, the whole model first. A module that fails is divided
    into its submodules, then ops, then groups of ops. Each of these runs in a process of its own: a crash, a hang or
    excessive memory use ends only that run, not the check. With --backward the gradients of inputs and weights are
    judged, too.

    Exit code 0 when every module runs and agrees with eager, 1 otherwise.
    """
    from torchstone.workflows.check import CheckRequest

    settings = settings_from(options)
    asked = CheckRequest(model=request, settings=settings, folder=output.folder, resume=output.resume)
    return run_and_show(session, asked, as_json=output.as_json, strict=options.strict, ci=ci)


def run_and_show(
    session: Session, request: "CheckRequest", *, as_json: bool, strict: bool = False, ci: CiOptions | None = None
) -> int:
    """Run a check, print its result, and write what continuous integration reads."""
    from torchstone.record.codec import encode
    from torchstone.report.checks_ci import check_for_ci
    from torchstone.workflows.check import run_requested_check

    shown = CheckProgress(session)
    try:
        result = run_requested_check(request, TerminalProgress(session), watching=shown.watching())
    except KeyboardInterrupt:
        shown.close()
        if request.folder is not None and not session.quiet:
            click.echo("interrupted; repeat the command with --resume to continue", err=True)
        raise
    finally:
        shown.close()
    click.echo(encode(result) if as_json else _text(result, session, with_repros=request.folder is not None))
    failed = not result.passed or bool(strict and result.suspicious)
    if ci is not None:
        write_for_ci(ci, lambda: check_for_ci(result, failed=failed))
    return EXIT_FINDINGS if failed else EXIT_FINE


def _text(result: "CheckResult", session: Session, *, with_repros: bool) -> str:
    from torchstone.report.check_text import check_text
    from torchstone.report.text import coloured, plain

    return check_text(result, coloured if session.uses_color else plain, with_repros=with_repros)


@command.command(name="compare", short_help="Compare the checks of several backends.")
@click.argument("folders", metavar="D1 D2 ...", nargs=-1, type=click.Path(path_type=Path, file_okay=False))
@click.option("--only-differences", is_flag=True, help="Show only modules whose status differs.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the comparison and its report to this folder.",
)
@json_option
@common_options
@click.pass_obj
def compare_command(
    session: Session, /, *, folders: tuple[Path, ...], only_differences: bool, folder: Path | None, as_json: bool
) -> int:
    """Compare the checks in several folders: one model on several backends, or before and after a change.

    Exit code 1 when a module or op that runs in the first folder fails in another.
    """
    from torchstone.record.codec import encode
    from torchstone.report.check_text import comparison_text
    from torchstone.report.text import coloured, plain
    from torchstone.workflows.check import compare_checks

    found = compare_checks(folders, folder, TerminalProgress(session))
    if as_json:
        click.echo(encode(found))
    else:
        paint = coloured if session.uses_color else plain
        click.echo(comparison_text(found, paint, only_differences=only_differences))
    return EXIT_FINDINGS if found.worse else EXIT_FINE


@command.command(name="matrix", short_help="Check several models on several backends.")
@click.argument("models", metavar="MODEL ...", nargs=-1)
@click.option("--backend", "backends", multiple=True, required=True, metavar="NAME", help="Backend; may be repeated.")
@click.option(
    "--python", "pythons", multiple=True, metavar="NAME=PATH", help="Interpreter of the environment of a backend."
)
@click.option(
    "--timeout",
    "deadline_s",
    type=click.FloatRange(min=0.1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Timeout per module or op.",
)
@click.option("--dir", "folder", required=True, type=click.Path(path_type=Path, file_okay=False),
              help="Folder for the pages and one check of each pair.")  # fmt: skip
@options_as(MatrixOptions)
@json_option
@common_options
@click.pass_obj
def matrix_command(session: Session, /, options: MatrixOptions, *, as_json: bool) -> int:
    """Check every MODEL on every backend, and write a table of verdicts and the ops that unlock most models.

    The pages are results.md and unlocking.md in --dir. A pair that was checked before runs only what has changed.
    Exit code 1 when a model fails on a backend.
    """
    from torchstone.workflows.check_matrix import RESULTS_PAGE, matrix_document, run_matrix

    request = _matrix_request(options)
    shown = CheckProgress(session)
    try:
        cells = run_matrix(request, TerminalProgress(session), shown.watching())
    finally:
        shown.close()
    page = options.folder / RESULTS_PAGE
    click.echo(matrix_document(cells) if as_json else page.read_text(encoding="utf-8"))
    return EXIT_FINE if all(one.result is not None and one.result.passed for one in cells) else EXIT_FINDINGS


def _matrix_request(options: MatrixOptions) -> "MatrixRequest":
    from torchstone.check.settings import Settings
    from torchstone.record.task import Limits
    from torchstone.workflows.check_matrix import MatrixRequest

    wrong = [text for text in options.pythons if "=" not in text]
    if wrong:
        msg = f"--python {wrong[0]!r} must name a backend and its interpreter: NAME=PATH"
        raise InputError(msg)
    return MatrixRequest(
        models=options.models,
        backends=options.backends,
        folder=options.folder,
        pythons=dict(text.split("=", 1) for text in options.pythons),
        settings=Settings(backend="", limits=Limits(deadline_s=options.deadline_s), exports_ir=False),
    )


@command.command(name="bundle", short_help="Write a finding as a zip to send.")
@click.argument("finding", metavar="FINDING")
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False), help="Folder of the check.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.zip", help="File to write.")
@click.option("--run", "runs", is_flag=True, help="Run the script once more, and add its result. The script is code.")
@click.option("--python", "interpreter", metavar="PATH",
              help="Interpreter for --run; this one by default, not the one that check.json names.")  # fmt: skip
@click.option("--timeout", "deadline_s", type=click.FloatRange(min=0.1), default=600.0, show_default=True,
              metavar="SECONDS", help="Timeout of the script, with --run.")  # fmt: skip
@common_options
@click.pass_obj
def bundle_command(  # noqa: PLR0913 - one parameter for each option
    session: Session,
    /,
    *,
    finding: str,
    folder: Path | None,
    output: Path | None,
    runs: bool,
    interpreter: str | None,
    deadline_s: float,
) -> None:
    """Write a finding as a zip: the script, the IR, the environment, and the text of a bug report.

    FINDING is an id or number with --dir, or both together: D/finding_001. With --run the script, and the backend that
    the check names, run with your permissions. Without it, nothing in the folder is executed.
    """
    import sys

    from torchstone.check.bundle import write_bundle

    if interpreter is not None and not runs:
        msg = "--python names the interpreter for --run; add --run, or drop --python"
        raise InputError(msg)
    place = folder if folder is not None else Path(finding).parent
    python = (interpreter or sys.executable) if runs else ""
    progress = TerminalProgress(session)
    with progress.step("running the script once more" if runs else "packing"):
        written = write_bundle(
            place, Path(finding).name, output, python=python, deadline_s=deadline_s, say=progress.note
        )
    if not runs:
        progress.note("the script was not run; --run adds its result to the report")
    click.echo(written)


@command.command(name="watch", short_help="Run bundles again on another version.")
@click.argument(
    "bundles", metavar="BUNDLE.zip ...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True)
)
@click.option(
    "--python",
    "interpreter",
    metavar="PATH",
    help="Interpreter of the environment with the version to try; this one by default.",
)
@click.option("--timeout", "deadline_s", type=click.FloatRange(min=0.1), default=600.0, show_default=True,
              metavar="SECONDS", help="Timeout of each script.")  # fmt: skip
@json_option
@common_options
@click.pass_obj
def watch_command(
    session: Session, /, *, bundles: tuple[Path, ...], interpreter: str | None, deadline_s: float, as_json: bool
) -> int:
    """Run the scripts of bundles again with another version of the backend: fixed, still fails, or changed.

    A bundle is code: its script runs with your permissions. A folder stands for all zips in it. Exit code 0 when all
    are fixed, 1 otherwise.
    """
    import sys

    import msgspec

    from torchstone.check.bundle import watch
    from torchstone.record.files import matching
    from torchstone.report.text import aligned, coloured, plain

    files = [file for one in bundles for file in (matching(one, "*.zip") if one.is_dir() else [one])]
    if not files:
        msg = f"{bundles[0]} has no bundles; write one with `torchstone check bundle`"
        raise InputError(msg)
    found = watch(files, interpreter or sys.executable, deadline_s=deadline_s, say=TerminalProgress(session).note)
    if as_json:
        document = {"schema": "torchstone/check_watch/1", "bundles": msgspec.to_builtins(found)}
        click.echo(msgspec.json.encode(document))
    else:
        rows = [["bundle", "state", "detail"], *([one.bundle, one.state, one.detail] for one in found)]
        click.echo(aligned(rows, paint=coloured if session.uses_color else plain))
    return EXIT_FINE if all(one.state == "fixed" for one in found) else EXIT_FINDINGS


@command.command(name="bisect", short_help="Find the first bad version for a bundle.")
@click.argument("bundle", metavar="BUNDLE.zip", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--python", "interpreters", multiple=True, metavar="PATH",
              help="Interpreter of an environment; repeat it, the oldest version of the backend first.")  # fmt: skip
@click.option("--timeout", "deadline_s", type=click.FloatRange(min=0.1), default=600.0, show_default=True,
              metavar="SECONDS", help="Timeout of each run of the script.")  # fmt: skip
@json_option
@common_options
@click.pass_obj
def bisect_command(
    session: Session, /, *, bundle: Path, interpreters: tuple[str, ...], deadline_s: float, as_json: bool
) -> int:
    """Find the first environment in which the script of a bundle fails, by halving.

    Without two environments, and for inductor, torch's own bisector looks for the part of the compiler at fault. A
    bundle is code: its script runs with your permissions. Exit code 0 when it fails nowhere, 1 otherwise.
    """
    from torchstone.check.bisect import bisect, bisect_compiler
    from torchstone.cli.bisect_output import print_bisected

    if len(interpreters) > 1:
        found = bisect(bundle, interpreters, deadline_s=deadline_s, say=TerminalProgress(session).note)
    else:
        with TerminalProgress(session).step("running torch's compiler bisector"):
            found = bisect_compiler(bundle, "".join(interpreters), deadline_s=10 * deadline_s)
    return print_bisected(session, found, "torchstone/check_bisect/1", as_json=as_json)


@command.command(name="explain", short_help="Explain a finding or a kind of finding.")
@click.argument("code", metavar="ID")
@common_options
@click.pass_obj
def explain_command(session: Session, /, *, code: str) -> None:  # noqa: ARG001 - every command takes it
    """Print what a finding means, how it was proven, and what to try.

    ID is a kind such as TS-CHK-001, or a finding of a check: D/finding_001. Of a finding the scripts are listed, too,
    and the smallest change with which it passes.
    """
    from torchstone.check.known_findings import explanation
    from torchstone.check.summary import finding_text

    path = Path(code)
    click.echo(finding_text(path.parent, path.name) if path.name != code else explanation(code), nl=False)


@command.command(name="export-ir", short_help="Export the IR of one module.")
@click.option("--module-id", required=True, metavar="ID", help="Id of a unique module: mod_000, mod_004_conv1.")
@click.option(
    "--modules-json",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The unique_modules.json of the check.",
)
@click.option("--backend", default="", metavar="NAME", help="Backend, if not the one of the check.")
@click.option("--backend-option", "pairs", multiple=True, metavar="NAME=VALUE", help="Option of that backend.")
@click.option("--python", "interpreter", metavar="PATH", help="Python interpreter of that backend's environment.")
@click.option("--timeout", "deadline_s", type=click.FloatRange(min=0.1), default=300.0, show_default=True,
              metavar="SECONDS", help="Timeout of the export.")  # fmt: skip
@options_as(BackendOptions)
@json_option
@common_options
@click.pass_obj
def export_command(
    session: Session, /, options: BackendOptions, *, module_id: str, modules_json: Path, as_json: bool
) -> int:
    """Export the IR of one module of an earlier check, to debug a failing export.

    The files are written to irs/ID beside unique_modules.json. Exit code 1 when the export fails.
    """
    from torchstone.workflows.check import ExportRequest, export_module_ir

    settings = settings_from(RunOptions(**asdict(options)))
    request = ExportRequest(modules_json=modules_json, module_id=module_id, settings=settings)
    exported = export_module_ir(request)
    _show_exported(exported, modules_json.parent, session, as_json=as_json)
    return EXIT_FINDINGS if exported.failed else EXIT_FINE


def _show_exported(exported: "ExportedIr", folder: Path, session: Session, *, as_json: bool) -> None:
    import msgspec

    result = exported.result
    if as_json:
        document = {"schema": "torchstone/exported_ir/1", "module": exported.module, "backend": exported.backend}
        click.echo(msgspec.json.encode(document | {"result": msgspec.to_builtins(result)}))
    elif exported.failed:
        reason = result.ir_error or result.reason
        click.echo(f"{exported.module} on {exported.backend}: {result.outcome.value}: {reason}")
        if result.proof is not None and not session.quiet:
            click.echo(result.proof.traceback or result.proof.last_output, err=True)
    else:
        for file in result.irs:
            click.echo(folder / file)

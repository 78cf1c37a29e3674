"""torchstone check: find which parts of a model run on a backend, and which ops fail."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

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

if TYPE_CHECKING:
    from torchstone.check.settings import Settings
    from torchstone.record.check import CheckResult
    from torchstone.workflows.check import CheckRequest, ExportedIr

_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[KMGT]i?B?|B)?", re.IGNORECASE)
_POWERS = {"B": 0, "K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """The options that name a backend and its environment."""

    backend: str
    interpreter: str | None
    pairs: tuple[str, ...]
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(BackendOptions):
    """The options of `check run`, as they were given."""

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
    all_ir: bool = False
    drift: bool = False
    reuse_results: bool = False


def settings_from(options: RunOptions) -> "Settings":
    """The settings of the check that these options ask for."""
    from torchstone.backends.registry import read_options
    from torchstone.check.settings import Granularity, Settings, read_tolerances, shared_results
    from torchstone.record.task import Limits

    return Settings(
        backend=options.backend,
        options=read_options(options.pairs),
        python=options.interpreter,
        jobs=options.jobs,
        limits=Limits(deadline_s=options.deadline_s, memory_bytes=read_size(options.memory_limit)),
        tolerances=read_tolerances(options.pcc, options.tolerances),
        profile=options.profile,
        granularity=Granularity.MODULE if options.root_only else Granularity(options.granularity),
        only=options.only,
        max_depth=0 if options.root_only else options.max_depth,
        exports_ir=not options.no_ir,
        ir_of_passing=options.all_ir and not options.no_ir,
        drift=options.drift,
        reuse=str(shared_results()) if options.reuse_results else "",
    )


def read_size(text: str | None) -> int | None:
    """A number of bytes: 4GiB, 512M, 1000000."""
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None or float(found["number"]) == 0:
        msg = f"--memory-limit {text!r} is not a size; write one such as 4GiB or 512MiB"
        raise InputError(msg)
    unit = (found["unit"] or "B")[0].upper()
    return int(float(found["number"]) * 1024 ** _POWERS[unit])


@click.group(cls=DefaultCommandGroup, default="run", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Find which parts of a model run on a backend, and which ops fail.

    `torchstone check MODEL --backend B --dir D` (short for `check run`) runs the model, its modules and their ops on
    the backend, each in a process of its own, and compares the outputs with eager PyTorch. `compare D1 D2` shows the
    results of several backends side by side. `export-ir` writes the IR of one module.
    """


_RUN_OPTIONS: tuple[Option, ...] = (
    click.option(
        "--backend", required=True, metavar="NAME", help="Backend to run on; `torchstone backends` lists them."
    ),
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
@json_option
@common_options
@click.pass_obj
def run_command(
    session: Session, /, request: ModelRequest, options: RunOptions, *, folder: Path | None, resume: bool, as_json: bool
) -> int:
    """Find which parts of MODEL run on a backend, and which ops fail.

    MODEL is any model that `torchstone inspect` accepts. It runs once on the CPU with real tensors. Its modules then
    run on the backend with the inputs and weights of that run, the whole model first. A module that fails is divided
    into its submodules, then ops, then groups of ops. Each of these runs in a process of its own: a crash, a hang or
    excessive memory use ends only that run, not the check.

    Exit code 0 when every module runs and agrees with eager, 1 otherwise.
    """
    from torchstone.workflows.check import CheckRequest

    asked = CheckRequest(model=request, settings=settings_from(options), folder=folder, resume=resume)
    return run_and_show(session, asked, as_json=as_json, strict=options.strict)


def run_and_show(session: Session, request: "CheckRequest", *, as_json: bool, strict: bool = False) -> int:
    """Run a check and print its result."""
    from torchstone.record.codec import encode
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
    failed = not result.passed or (strict and result.suspicious)
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

"""torchstone check run MODEL: from the root of the module tree down to the op to blame."""

import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.check_options import check_options, settings_of, subject_of
from torchstone.cli.check_progress import CheckProgress
from torchstone.cli.model_options import ModelRequest, model_options
from torchstone.cli.options import Session, common_options, json_option
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError

if TYPE_CHECKING:
    from torchstone.check.checking import Subject
    from torchstone.check.settings import Settings
    from torchstone.record.check import CheckResult
    from torchstone.record.trace import Trace

ANALYSIS_PAGE = "analysis_report.html"


@click.command(short_help="Check a model on a backend.")
@model_options
@check_options
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write results, IR, repro scripts and the report to this folder.",
)
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, request: ModelRequest, *, folder: Path | None, as_json: bool, **given: Any) -> int:
    """Find out what of MODEL works on a backend, and which op is to blame for what does not.

    MODEL is anything that `torchstone inspect` takes. It runs once on the CPU; its modules then run on the backend with
    the inputs and weights they had, the whole model first. What fails is taken apart: modules, ops, groups of ops. Each
    run is a process of its own, so that a crash, a hang or a flood ends one run and not the check.

    Exit code 0 when all of it works, 1 when something does not.
    """
    settings = settings_of(given)
    if given["resume"] and folder is None:
        msg = "--resume needs the --dir of the run to go on with"
        raise click.UsageError(msg)
    subject = subject_of(request, shlex.join(["torchstone", *sys.argv[1:]]))
    return check_and_report(session, subject, settings, folder, as_json=as_json, resume=given["resume"])


def check_and_report(
    session: Session, subject: "Subject", settings: "Settings", folder: Path | None, *, as_json: bool, resume: bool
) -> int:
    """Run a check, print what was found and write the pages."""
    from torchstone.check.checking import run_check
    from torchstone.check.settings import Folder
    from torchstone.record.codec import encode

    progress = CheckProgress(session)
    with ExitStack() as stack:
        where = folder or Path(stack.enter_context(TemporaryDirectory(prefix="torchstone-check-")))
        try:
            result = run_check(
                subject, settings, Folder(path=where.resolve()), resume=resume, prices=prices_of,
                watching=progress.watching(),
            )  # fmt: skip
        except KeyboardInterrupt:
            progress.close()
            if folder is not None and not session.quiet:
                click.echo("stopped; the same command with --resume goes on from here", err=True)
            raise
        finally:
            progress.close()
        click.echo(encode(result) if as_json else _text(result, session, folder))
        if folder is not None:
            _write_pages(folder, session)
        elif result.findings and not session.quiet:
            click.echo("add --dir D to keep the scripts that show each failure, the IR and the report", err=True)
    return EXIT_FINE if result.passed else EXIT_FINDINGS


def prices_of(trace: "Trace") -> Sequence[int | None]:
    """FLOPs of one call of each op signature; None where there is no price."""
    from torchstone.cost.pricing import price
    from torchstone.record.cost import Kind

    return [None if cost.kind is Kind.UNPRICED else cost.flops for cost in price(trace).signatures]


def _text(result: "CheckResult", session: Session, folder: Path | None) -> str:
    from torchstone.report.check_text import check_text
    from torchstone.report.text import coloured, plain

    return check_text(result, coloured if session.uses_color else plain, with_repros=folder is not None)


def _write_pages(folder: Path, session: Session) -> None:
    from torchstone.record.codec import write_atomically
    from torchstone.report.render import write_report

    try:
        page = write_report(folder)
        write_atomically(folder / ANALYSIS_PAGE, page.read_bytes())
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}; choose another --dir"
        raise InputError(msg) from error
    if not session.quiet:
        click.echo(f"wrote {folder}: summary.md, unique_modules.json, check.json, {ANALYSIS_PAGE}", err=True)
        click.echo(f"next: torchstone serve {folder}", err=True)

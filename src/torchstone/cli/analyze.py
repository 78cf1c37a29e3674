"""torchstone analyze MODEL: every question about a model, one folder, one page."""

from dataclasses import dataclass
from pathlib import Path

import click

from torchstone.cli.model_options import ModelRequest, model_options
from torchstone.cli.options import Session, common_options, json_option, options_as
from torchstone.cli.progress import TerminalProgress
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions:
    """The options of `torchstone analyze` beside those that name the model."""

    backends: tuple[str, ...]
    hardware: tuple[str, ...]
    python: str
    quick: bool
    resume: bool
    folder: Path
    as_json: bool


@click.command()
@model_options
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="Check the model on this backend; may be repeated. By default those that are installed and fast.",
)
@click.option(
    "--hardware",
    multiple=True,
    metavar="NAME|FILE.toml",
    help="Say whether the model fits on this device, and how fast it can be; may be repeated.",
)
@click.option(
    "--python",
    default="",
    metavar="ENV",
    help="Environment with ttnn: also execute the model's ops on the mock boards among --hardware.",
)
@click.option("--quick", is_flag=True, help="Leave out golden data, formulas and slow backends.")
@click.option("--resume", is_flag=True, help="Keep the answers of an interrupted analysis in --dir.")
@click.option(
    "--dir",
    "folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Write all results and report.html to this folder.",
)
@json_option
@common_options
@click.pass_obj
@options_as(AnalyzeOptions)
def command(session: Session, /, request: ModelRequest, options: AnalyzeOptions) -> int:
    """Answer every question about MODEL: what it is made of, what it costs, whether it fits and runs, what is correct.

    One capture, then cost, devices, check on the backends, formulas, op calls and golden data, all in one folder with
    one page. A stage that fails does not stop the others. The terminal shows the answers, the page also what is behind
    them.

    Exit code 1 if the model fails on a backend, does not fit on a device, or a stage could not answer.
    """
    from torchstone.record.codec import encode
    from torchstone.report.analysis_text import analysis_text
    from torchstone.report.text import coloured, plain
    from torchstone.workflows.analyze import AnalyzeRequest, analyze

    asked = AnalyzeRequest(
        model=request,
        folder=options.folder,
        backends=options.backends,
        hardware=options.hardware,
        python=options.python,
        quick=options.quick,
        resume=options.resume,
    )
    analysis = analyze(asked, TerminalProgress(session))
    paint = coloured if session.uses_color else plain
    click.echo(encode(analysis) if options.as_json else analysis_text(analysis, paint))
    return EXIT_FINDINGS if analysis.bad else EXIT_FINE

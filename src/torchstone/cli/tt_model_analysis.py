"""tt-model-analysis: `torchstone check` under the name of the tool that it replaces."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click

from torchstone import __version__
from torchstone.cli.check import BackendOptions, RunOptions, run_and_show, settings_from
from torchstone.cli.model_options import ModelRequest
from torchstone.cli.options import Session, common_options, options_as


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisOptions(BackendOptions):
    """The options of tt-model-analysis."""

    model_path: str
    inputs_path: str
    folder: Path
    root_only: bool
    resume: bool


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--model-path", required=True, metavar="FILE.py::FN", help="Function that returns the model.")
@click.option("--inputs-path", required=True, metavar="FILE.py::FN", help="Function that returns its inputs.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("model_analysis"),
    show_default=True,
    help="Folder for the results.",
)
@click.option("--root-only", is_flag=True, help="Run only the whole model.")
@click.option("--backend", default="tt", show_default=True, metavar="NAME", help="Backend to run on.")
@click.option("--python", "interpreter", metavar="PATH", help="Python interpreter of the backend's environment.")
@click.option("--backend-option", "pairs", multiple=True, metavar="NAME=VALUE", help="Option of the backend.")
@click.option("--timeout", "deadline_s", type=click.FloatRange(min=0.1), default=300.0, show_default=True,
              metavar="SECONDS", help="Timeout per module or op.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Resume the interrupted run in --dir.")
@click.version_option(__version__, prog_name="tt-model-analysis")
@options_as(AnalysisOptions)
@common_options
@click.pass_obj
def command(session: Session, /, options: AnalysisOptions) -> int:
    """Find which modules and ops of a model run: `torchstone check` as tt-model-analysis.

    Writes unique_modules.json, irs/, summary.md and analysis_report.html. Without Tenstorrent hardware, give another
    --backend, such as inductor.
    """
    from torchstone.workflows.check import CheckRequest

    command_line = shlex.join(["tt-model-analysis", *sys.argv[1:]])
    request = CheckRequest(
        model=ModelRequest(model=options.model_path, inputs=options.inputs_path, command=command_line),
        settings=settings_from(
            RunOptions(
                backend=options.backend,
                interpreter=options.interpreter,
                pairs=options.pairs,
                deadline_s=options.deadline_s,
                root_only=options.root_only,
                all_ir=True,
            )
        ),
        folder=options.folder,
        resume=options.resume,
    )
    return run_and_show(session, request, as_json=False)


def main() -> NoReturn:
    """The `tt-model-analysis` command."""
    from torchstone.cli.main import start

    start(command, "tt-model-analysis")

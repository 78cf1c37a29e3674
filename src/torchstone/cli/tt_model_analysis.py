"""tt-model-analysis: the check under the name people know."""

import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from torchstone import __version__
from torchstone.cli.check_options import settings_of
from torchstone.cli.check_run import check_and_report
from torchstone.cli.options import Session, common_options


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--model-path", required=True, metavar="FILE.py::FN", help="A function that gives the model.")
@click.option("--inputs-path", required=True, metavar="FILE.py::FN", help="A function that gives its inputs.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("model_analysis"),
    show_default=True,
    help="Where the results go.",
)
@click.option("--root-only", is_flag=True, help="Run the whole model and nothing else.")
@click.option("--backend", default="tt", show_default=True, metavar="NAME", help="What to run on.")
@click.option("--python", "interpreter", metavar="PATH", help="The Python of the environment that has the backend.")
@click.option("--backend-option", "pairs", multiple=True, metavar="NAME=VALUE", help="An option of the backend.")
@click.option("--timeout", "deadline_s", type=click.FloatRange(min=0.1), default=300.0, show_default=True,
              metavar="SECONDS", help="How long one module or op may take.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on where an interrupted run ended.")
@click.version_option(__version__, prog_name="tt-model-analysis")
@common_options
@click.pass_obj
def command(session: Session, /, *, model_path: str, inputs_path: str, folder: Path, resume: bool, **given: Any) -> int:
    """Find out which modules and ops of a model work: `torchstone check` under the name people know.

    Writes unique_modules.json, irs/, summary.md and analysis_report.html. Without Tenstorrent hardware give another
    --backend, such as inductor.
    """
    import shlex

    from torchstone.check.checking import Subject

    settings = settings_of({**given, "memory_limit": None})
    subject = Subject(model=model_path, inputs=inputs_path, command=shlex.join(["tt-model-analysis", *sys.argv[1:]]))
    return check_and_report(session, subject, settings, folder, as_json=False, resume=resume)


def main() -> NoReturn:
    """The `tt-model-analysis` command."""
    from torchstone.cli.main import run

    sys.exit(run(program=command, name="tt-model-analysis"))

"""torchstone memory run SCRIPT: from a script to a report."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.memory_options import folder_options, hint, read_timeline, tell_written, warn, write_documents
from torchstone.cli.memory_report import write_page
from torchstone.cli.options import Session, common_options
from torchstone.errors import EXIT_BAD_INPUT, InputError

if TYPE_CHECKING:
    from torchstone.memory.folder import MemoryFolder


@click.command(
    short_help="From a script to a report.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@folder_options
@click.option("--log-only", is_flag=True, help="Save the log and stop there.")
@click.option("--show-log", is_flag=True, help="Show the runtime's lines too while the script runs.")
@common_options
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.pass_obj
def command(session: Session, /, *, script: Path, directory: Path | None, name: str, **how: object) -> int:
    """Run SCRIPT with ARGS so that the runtime logs everything, then write the report.

    Its output is shown as it comes, the log is saved beside the report, and the exit code is the script's own. When
    there is nothing to show the missing variable or build flag is named, and the exit code is 2 if the script's is 0.
    """
    from torchstone.memory.folder import folder_for

    arguments = how["arguments"]
    assert isinstance(arguments, tuple)  # noqa: S101 - click gives one
    return run_and_report(
        session,
        script,
        arguments,
        folder=folder_for(script, directory=directory, name=name),
        log_only=bool(how["log_only"]),
        show_log=bool(how["show_log"]),
    )


def run_and_report(
    session: Session,
    script: Path,
    arguments: tuple[str, ...],
    *,
    folder: "MemoryFolder",
    log_only: bool = False,
    show_log: bool = False,
) -> int:
    """Run, save, parse, render; gives the exit code."""
    from torchstone.memory.run_script import run_script

    ran = run_script(script, arguments, log=folder.log, show_log=show_log)
    tell_written(session, ran.log)
    if log_only:
        hint(session, f"next: torchstone memory show {ran.log}")
        return ran.exit_code
    try:
        has_page = _report(session, folder)
    except InputError as error:
        click.echo(f"no report: {error}", err=True)
        has_page = False
    if ran.exit_code:
        hint(session, f"the script ended with exit code {ran.exit_code}")
    return ran.exit_code or (0 if has_page else EXIT_BAD_INPUT)


def _report(session: Session, folder: "MemoryFolder") -> bool:
    from torchstone.memory.diagnosis import diagnose, has_memory

    timeline = read_timeline(session, str(folder.log))
    if not has_memory(timeline):
        for note in diagnose(timeline):
            click.echo(f"no report: {note}", err=True)
        return False
    write_documents(session, folder, timeline)
    warn(session, timeline)
    click.echo(write_page(session, folder.path, folder.page))
    hint(session, f"next: torchstone memory show {folder.path}")
    return True

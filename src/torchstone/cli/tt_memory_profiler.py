"""tt-memory-profiler: the profiler under the name people know."""

import sys
from pathlib import Path
from typing import NoReturn

import click

from torchstone import __version__
from torchstone.cli.memory_options import hint, read_timeline, warn, write_documents
from torchstone.cli.memory_report import write_page
from torchstone.cli.memory_run import run_and_report
from torchstone.cli.options import Session, common_options


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--log", "log_only", is_flag=True, help="Run SCRIPT and save its log; no report.")
@click.option(
    "--analyze", type=click.Path(path_type=Path), metavar="LOG", help="Read a log and write its JSON documents."
)
@click.option(
    "--visualize", type=click.Path(path_type=Path), metavar="DIR", help="Write the page of a folder with documents."
)
@click.version_option(__version__, prog_name="tt-memory-profiler")
@common_options
@click.argument("script", required=False, type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.pass_obj
def command(
    session: Session,
    *,
    script: Path | None,
    arguments: tuple[str, ...],
    log_only: bool,
    analyze: Path | None,
    visualize: Path | None,
) -> int:
    """Profile the device memory of SCRIPT: run it, save its log, and write a report to ~/.ttmem/reports.

    The exit code is the script's. The same as `torchstone memory run`, `parse` and `report`.
    """
    from torchstone.memory.folder import find_folder, folder_for

    if sum(one is not None for one in (script, analyze, visualize)) != 1:
        msg = "give one of: a script to run, --analyze LOG, --visualize DIR"
        raise click.UsageError(msg)
    if script is not None:
        return run_and_report(session, script, arguments, folder=folder_for(script), log_only=log_only)
    if analyze is not None:
        timeline = read_timeline(session, str(analyze))
        folder = folder_for(analyze)
        write_documents(session, folder, timeline)
        warn(session, timeline)
        click.echo(folder.path)
        hint(session, f"next: tt-memory-profiler --visualize {folder.path}")
    elif visualize is not None:
        folder = find_folder(visualize)
        click.echo(write_page(session, folder.path, folder.page))
    return 0


def main() -> NoReturn:
    """The `tt-memory-profiler` command."""
    from torchstone.cli.main import run

    sys.exit(run(program=command, name="tt-memory-profiler"))

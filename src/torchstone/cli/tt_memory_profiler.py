"""tt-memory-profiler: the profiler under the name people know."""

from pathlib import Path
from shlex import quote
from typing import NoReturn

import click

from torchstone import __version__
from torchstone.cli.memory import print_script_report, watching
from torchstone.cli.options import Session, common_options
from torchstone.cli.progress import TerminalProgress


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
    from torchstone.memory.folder import find_folder
    from torchstone.workflows.memory import (
        ReportRequest,
        ScriptRequest,
        parse_memory,
        run_memory,
        write_page,
    )

    if sum(one is not None for one in (script, analyze, visualize)) != 1:
        msg = "give one of: a script to run, --analyze LOG, --visualize DIR"
        raise click.UsageError(msg)
    progress = TerminalProgress(session)
    if script is not None:
        request = ScriptRequest(script=script, arguments=arguments, log_only=log_only)
        return print_script_report(session, run_memory(request, progress, watch=watching(session)))
    if analyze is not None:
        wanted = ReportRequest(source=str(analyze))
        folder = parse_memory(wanted, progress, watch=watching(session)).folder
        click.echo(folder.path)
        progress.note(f"next: tt-memory-profiler --visualize {quote(str(folder.path))}")
    elif visualize is not None:
        folder = find_folder(visualize)
        click.echo(write_page(folder.path, folder.page, progress))
    return 0


def main() -> NoReturn:
    """The `tt-memory-profiler` command."""
    from torchstone.cli.main import start

    start(command, "tt-memory-profiler")

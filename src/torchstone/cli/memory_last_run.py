"""torchstone memory last-run LOG: a short log from a long one."""

from pathlib import Path

import click

from torchstone.cli.memory_options import hint, log_options, read_timeline
from torchstone.cli.options import Session, common_options


@click.command(short_help="A short log from a long one.")
@click.argument("log", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write; NAME_last_run.log beside the log when left out.",
)
@click.option("-f", "--force", is_flag=True, help="Replace the file if it is there.")
@log_options
@common_options
@click.pass_obj
def command(session: Session, /, *, log: Path, output: Path | None, force: bool, **how: str) -> None:
    """Copy the last complete pass of each graph in LOG to a file of its own; LOG stays as it is.

    Const-eval programs run in a first pass only and are kept from there. With traces the pass that captured is taken,
    as replays show no ops.
    """
    from torchstone.errors import InputError
    from torchstone.memory.last_run import choose_last_run, write_last_run

    stem = log.name.removesuffix(".gz").removesuffix(".log")
    target = output or log.with_name(f"{stem}_last_run.log")
    if target.exists() and not force:
        msg = f"{target} is there already; give --force to replace it, or another --output"
        raise InputError(msg)
    last = choose_last_run(read_timeline(session, str(log), **how))
    written = write_last_run(log, last, target)
    click.echo(target)
    for part in last.parts:
        hint(session, f"kept lines {part.first_line} to {part.last_line}: {part.what}")
    for note in last.notes:
        hint(session, f"warning: {note}")
    hint(session, f"{written:,} lines; next: torchstone memory show {target}")

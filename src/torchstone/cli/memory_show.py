"""torchstone memory show LOG: the answer on the terminal."""

import click

from torchstone.cli.memory_options import log_options, read_timeline, warn
from torchstone.cli.options import Session, common_options, json_option


@click.command(short_help="The answer on the terminal.")
@click.argument("log")
@click.option("--top", default=10, show_default=True, type=click.IntRange(min=1), help="Rows of each table.")
@click.option("--op", type=click.IntRange(min=0), help="Show what was alive before this op instead.")
@log_options
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, *, log: str, top: int, op: int | None, as_json: bool, **how: str) -> None:
    """Show the peak of each memory in LOG, what was alive, what grew, what padding costs, and why it ran out."""
    import msgspec

    from torchstone.memory.documents import show_document
    from torchstone.memory.study import Study
    from torchstone.report import memory_text
    from torchstone.report.text import coloured, plain

    timeline = read_timeline(session, log, **how)
    study = Study(timeline)
    paint = coloured if session.uses_color else plain
    if op is not None and op >= len(timeline.ops):
        msg = f"--op {op} is not in the log: it has the ops 0 to {len(timeline.ops) - 1}"
        raise click.UsageError(msg)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(show_document(study)), indent=1))
        warn(session, timeline)
    elif op is not None:
        click.echo(memory_text.op_text(study, op, top=top, paint=paint))
    else:
        click.echo(memory_text.memory_text(study, top=top, paint=paint))

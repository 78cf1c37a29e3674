"""torchstone memory compare A B: two runs side by side."""

from typing import Any

import click

from torchstone.cli.memory_options import log_options, read_timeline
from torchstone.cli.options import Session, common_options, json_option
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--memory", default="", metavar="NAME", help="Compare effects in this memory; DRAM when left out.")
@click.option("--top", default=20, show_default=True, type=click.IntRange(min=1), help="Rows of the table.")
@click.option(
    "--max-growth",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="Exit with 1 when a peak of B is more than this above A's.",
)
@log_options
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, *, first: str, second: str, memory: str, as_json: bool, **how: Any) -> int:
    """Align the ops of two runs (logs or reports): where they begin to differ, and what that does to memory."""
    import msgspec

    from torchstone.memory.compare import compare, grown_peaks
    from torchstone.memory.documents import comparison_document
    from torchstone.memory.study import Study
    from torchstone.report.memory_text import comparison_text
    from torchstone.report.text import coloured, plain

    top, max_growth = how.pop("top"), how.pop("max_growth")
    ours, theirs = (Study(read_timeline(session, source, **how)) for source in (first, second))
    found = compare(ours, theirs, memory=memory)
    if as_json:
        click.echo(msgspec.json.encode(comparison_document(found, ours, theirs)))
    else:
        paint = coloured if session.uses_color else plain
        click.echo(comparison_text(ours, theirs, found, top=top, paint=paint))
    grown = [] if max_growth is None else grown_peaks(found, max_growth_percent=max_growth)
    for mine, other in grown:
        before, after = (peak.state.allocated / ours.timeline.ticks_per_mib for peak in (mine, other))
        click.echo(f"{mine.memory} peak grew from {before:.3f} to {after:.3f} MiB per bank", err=True)
    return EXIT_FINDINGS if grown else EXIT_FINE

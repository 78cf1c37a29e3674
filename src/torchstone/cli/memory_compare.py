"""torchstone memory compare A B: two runs side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.memory_options import log_options, read_timeline
from torchstone.cli.memory_report import write_page
from torchstone.cli.options import Session, common_options, json_option
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError

if TYPE_CHECKING:
    from torchstone.record.memory_findings import MemoryComparison


@click.command(short_help="Two runs side by side.")
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
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write comparison_report.html to this folder too.",
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

    top, max_growth, directory = how.pop("top"), how.pop("max_growth"), how.pop("directory")
    ours, theirs = (Study(read_timeline(session, source, **how)) for source in (first, second))
    found = compare(ours, theirs, memory=memory)
    if as_json:
        click.echo(msgspec.json.encode(comparison_document(found, ours, theirs)))
    else:
        paint = coloured if session.uses_color else plain
        click.echo(comparison_text(ours, theirs, found, top=top, paint=paint))
    if directory is not None:
        _write(session, directory, found)
    grown = [] if max_growth is None else grown_peaks(found, max_growth_percent=max_growth)
    for mine, other in grown:
        before, after = (peak.state.allocated / ours.timeline.ticks_per_mib for peak in (mine, other))
        click.echo(f"{mine.memory} peak grew from {before:.3f} to {after:.3f} MiB per bank", err=True)
    return EXIT_FINDINGS if grown else EXIT_FINE


def _write(session: Session, directory: Path, found: "MemoryComparison") -> None:
    from torchstone.record.codec import save
    from torchstone.report.sections.memory_comparison import FILE

    try:
        save(directory / FILE, found)
        write_page(session, directory, directory / "comparison_report.html")
    except OSError as error:
        msg = f"cannot write to {directory}: {error.strerror or error}; choose another --dir"
        raise InputError(msg) from error

"""torchstone memory report SOURCE: one HTML page."""

from pathlib import Path

import click

from torchstone.cli.memory_options import (
    folder_options,
    hint,
    log_options,
    read_timeline,
    tell_written,
    warn,
    write_documents,
)
from torchstone.cli.options import Session, common_options


@click.command(short_help="One HTML page from a log or folder.")
@click.argument("source", metavar="LOG|DIR")
@folder_options
@log_options
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@common_options
@click.pass_obj
def command(
    session: Session, /, *, source: str, directory: Path | None, name: str, open_page: bool, **how: str
) -> None:
    """Write NAME_report.html: memory over time, peaks, padding, weights, in one file that works offline.

    A folder made by `memory parse` is shown as it is, unless --dir or --name is given; a log is parsed first.
    """
    from torchstone.memory.folder import find_folder, folder_for, locate

    place = locate(source)
    if place.is_dir() and directory is None and not name:
        folder = find_folder(place)
    else:
        timeline = read_timeline(session, source, **how)
        folder = folder_for(source, directory=directory, name=name)
        write_documents(session, folder, timeline)
        warn(session, timeline)
    page = write_page(session, folder.path, folder.page)
    click.echo(page)
    hint(session, f"next: open it in a browser, or `ttmem serve` to see all reports of {folder.path.parent}")
    if open_page:
        click.launch(page.resolve().as_uri())


def write_page(session: Session, folder: Path, page: Path) -> Path:
    """Render the page of a report folder."""
    from torchstone.record.codec import write_atomically
    from torchstone.report.assemble import assemble
    from torchstone.report.page import render_page
    from torchstone.report.registry import SECTIONS
    from torchstone.report.render import render_twin
    from torchstone.report.section import ReportFolder

    report = assemble(ReportFolder(folder), SECTIONS)
    write_atomically(page.with_suffix(".json"), render_twin(report))
    write_atomically(page, render_page(report))
    tell_written(session, page)
    return page

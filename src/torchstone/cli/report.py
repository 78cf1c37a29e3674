"""torchstone report DIR: render what a folder holds."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import click

from torchstone.cli.options import Session, common_options, json_option, options_as


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """What is written beside the page, and what is left out of it."""

    no_source: bool
    with_csv: bool
    exports: tuple[str, ...]
    open_page: bool


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--no-source", is_flag=True, help="Omit file names, line numbers and the command line, to share the page."
)
@click.option("--csv", "with_csv", is_flag=True, help="Also write each table as a CSV file.")
@click.option(
    "--export",
    "exports",
    multiple=True,
    type=click.Choice(["perfetto", "model-explorer"]),
    help="Also write a file for another viewer: the predicted timeline for Perfetto, or the graph of ops for Model "
    "Explorer; may be repeated.",
)
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@options_as(ReportOptions)
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, options: ReportOptions, *, folder: Path, as_json: bool) -> None:
    """Render the results in DIR as one page, DIR/report.html, and its data as DIR/report.json.

    The page is a single file that works offline. Run the command again after adding results to the folder.
    """
    import msgspec

    from torchstone.record.folder_lock import SHORT_WRITE_S, exclusive
    from torchstone.report.exports import write_exports
    from torchstone.report.render import TWIN_FILE, USUAL, write_report
    from torchstone.units import show_bytes

    formats = (*USUAL, "csv") if options.with_csv else USUAL
    with exclusive(folder, wait_s=SHORT_WRITE_S) if folder.is_dir() else nullcontext():
        page = write_report(folder, source=not options.no_source, formats=formats)
        written = write_exports(folder, options.exports) if options.exports else []
    size_bytes = page.stat().st_size
    if as_json:
        document = {
            "schema": "torchstone/rendered/1",
            "page": str(page),
            "twin": str(page.with_name(TWIN_FILE)),
            "size_bytes": size_bytes,
            "source": not options.no_source,
            "exports": [str(path) for path in written],
        }
        click.echo(msgspec.json.encode(document))
    else:
        for path in (page, *written):
            click.echo(path)
    if not session.quiet:
        click.echo(f"{show_bytes(size_bytes)}; `torchstone serve {folder}` shows it in a browser", err=True)
    if options.open_page:
        click.launch(page.resolve().as_uri())

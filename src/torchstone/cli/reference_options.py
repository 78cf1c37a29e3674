"""What `reference verify` and `reference compare` share."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import Session
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError

if TYPE_CHECKING:
    from torchstone.record.comparison import Comparison

COMPARISON_FILE = "comparison.json"

pcc_option = click.option(
    "--pcc",
    type=click.FloatRange(-1, 1),
    default=0.99,
    show_default=True,
    help="The least Pearson correlation of a tensor that passes.",
)


def show_comparison(found: "Comparison", session: Session, *, only_wrong: bool, as_json: bool) -> int:
    """Print a comparison and give its exit code."""
    from torchstone.record.codec import encode
    from torchstone.report.comparison_text import comparison_text
    from torchstone.report.text import coloured, plain

    if as_json:
        click.echo(encode(found))
    else:
        paint = coloured if session.uses_color else plain
        click.echo(comparison_text(found, only_wrong=only_wrong, paint=paint), color=session.uses_color)
    return EXIT_FINE if found.passed else EXIT_FINDINGS


def save_comparison(folder: Path, found: "Comparison", session: Session) -> None:
    """Keep a comparison beside the golden data, and show it in the report."""
    from torchstone.record.codec import save
    from torchstone.report.render import write_report

    try:
        save(folder / COMPARISON_FILE, found)
        page = write_report(folder)
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}"
        raise InputError(msg) from error
    if not session.quiet:
        click.echo(f"wrote {folder / COMPARISON_FILE} and {page}", err=True)

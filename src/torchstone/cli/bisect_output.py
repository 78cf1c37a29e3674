"""What a search over environments found, in the terminal or as JSON, for `check bisect` and `sweep bisect`."""

from typing import TYPE_CHECKING

import click

from torchstone.cli.options import Session
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

if TYPE_CHECKING:
    from torchstone.workers.version_search import Bisected


def print_bisected(session: Session, found: "Bisected", schema: str, *, as_json: bool) -> int:
    """Print what was tried and the verdict; gives the exit code."""
    import msgspec

    from torchstone.report.text import aligned, coloured, plain

    if as_json:
        click.echo(msgspec.json.encode({"schema": schema, **msgspec.to_builtins(found)}))
        return EXIT_FINDINGS if found.fails else EXIT_FINE
    rows = [["environment", "version", "state", "detail"]]
    rows += [[one.python, one.version, one.state, one.detail] for one in found.tried]
    if found.tried:
        click.echo(aligned(rows, paint=coloured if session.uses_color else plain))
    click.echo(found.verdict)
    return EXIT_FINDINGS if found.fails else EXIT_FINE

"""torchstone backends: the backends that models can run on."""

from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import step
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

if TYPE_CHECKING:
    from torchstone.record.task import BackendFacts, BackendListing

SCHEMA = "torchstone/backends/1"
_HEADER = ("backend", "origin", "usable", "version, or why not")
_BESIDE = 30  # columns that the cells before the last one take
_NARROWEST = 40


@click.command()
@click.argument("names", nargs=-1, metavar="[BACKEND]...")
@click.option("--python", metavar="PATH", help="Look in the environment of this Python interpreter.")
@json_option
@common_options
@click.pass_obj
def command(session: Session, names: tuple[str, ...], python: str | None, *, as_json: bool) -> int:
    """List the backends with their versions, and whether each can run here or what it needs.

    BACKEND is a name of the list, file.py::Class or package.module:Class; without one, all are listed.

    Exit code 1 if a BACKEND you name cannot run, 2 if its name is unknown.
    """
    from torchstone.backends.registry import describe_all, describe_some

    with step("asking the environment", session):
        listing = describe_some(names, python=python) if names else describe_all(python=python)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({"schema": SCHEMA, **msgspec.to_builtins(listing)}))
    else:
        click.echo(_table(listing, session))
        if not session.quiet:
            click.echo(_summary(listing), err=True)
    unusable = any(not one.usable for one in listing.backends)
    return EXIT_FINDINGS if names and unusable else EXIT_FINE


def _table(listing: "BackendListing", session: Session) -> str:
    from torchstone.report.text import aligned, coloured, plain

    rows = [_HEADER]
    for one in listing.backends:
        room = max(_NARROWEST, get_terminal_size().columns - len(one.name) - _BESIDE)
        first, *more = wrap(_remark(one), room, break_on_hyphens=False) or [""]
        rows.append((one.name, one.origin.value, "yes" if one.usable else "no", first))
        rows.extend(("", "", "", line) for line in more)
    return aligned(rows, paint=coloured if session.uses_color else plain)


def _remark(one: "BackendFacts") -> str:
    if one.usable:
        return one.version
    return f"{one.reason}; needs {one.needs}" if one.needs else one.reason


def _summary(listing: "BackendListing") -> str:
    usable = sum(one.usable for one in listing.backends)
    return f"{usable} of {len(listing.backends)} can run in {listing.python} (Python {listing.python_version})."

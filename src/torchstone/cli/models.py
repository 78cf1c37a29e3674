"""torchstone models: the model configurations that ship."""

import json
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import Session, common_options, json_option
from torchstone.units import many

if TYPE_CHECKING:
    from torchstone.models.zoo.catalogue import ZooEntry

SCHEMA = "torchstone/models/1"


@click.command()
@click.option(
    "--filter", "text", default="", metavar="TEXT", help="Only models whose id, family or kind contains TEXT."
)
@json_option
@common_options
@click.pass_obj
def command(session: Session, text: str, *, as_json: bool) -> None:
    """List the model configurations that ship with torchstone.

    Use an id wherever a command takes MODEL; the organization may be omitted. No model needs the network, an account
    or weights.
    """
    from torchstone.models.zoo.catalogue import entries

    chosen = [entry for entry in entries() if text.lower() in f"{entry.id} {entry.family} {entry.kind}".lower()]
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, "models": [_document(entry) for entry in chosen]}, indent=1))
        return
    click.echo(_table(chosen, session))
    if not session.quiet:
        click.echo(f"{len(chosen)} of {many(len(entries()), 'model')}.", err=True)
        click.echo("tiny:TYPE gives a small random model of any transformers model type, such as tiny:bert.", err=True)


def _document(entry: "ZooEntry") -> dict[str, object]:
    import msgspec

    values: dict[str, object] = msgspec.to_builtins(entry)
    return {"aliases": [], "note": "", "published_rounding": 0, **values}


def _table(chosen: "list[ZooEntry]", session: Session) -> str:
    from torchstone.report.text import aligned, coloured, plain
    from torchstone.units import show_count

    rows = [("model", "family", "parameters", "kind")]
    rows += [(entry.id, entry.family, show_count(entry.parameters), entry.kind) for entry in chosen]
    return aligned(rows, right=(2,), paint=coloured if session.uses_color else plain)

"""torchstone db info: what the database holds."""

from typing import TYPE_CHECKING

import click

from torchstone.cli.db_options import db_option, open_store
from torchstone.cli.options import Session, common_options, json_option

if TYPE_CHECKING:
    from torchstone.record.config import TraceRun

SCHEMA = "torchstone/db-info/1"


@click.command(short_help="What the database holds, in numbers.")
@db_option
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, *, database: str | None, as_json: bool) -> None:
    """Show what the database holds: configurations, ops, sources, calls."""
    import msgspec

    from torchstone.report.text import aligned, coloured, plain

    with open_store(database) as store:
        info, runs, name = store.info(), store.runs(), store.name
    if as_json:
        document = {"schema": SCHEMA, "database": name, **msgspec.to_builtins(info), "traces": _traces(runs)}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=1))
        return
    rows = [
        ("configurations", str(info.configurations)),
        ("operations", str(info.operations)),
        ("sources", str(info.sources)),
        ("calls", str(info.calls) + (f", and {info.uncounted} places without a count" if info.uncounted else "")),
    ]
    click.echo(f"{name}\n{aligned(rows, header=False)}")
    if runs:
        listed = [("format", "run", "from"), *((run.format.value, run.run, run.source) for run in runs)]
        click.echo("\n" + aligned(listed, paint=coloured if session.uses_color else plain))


def _traces(runs: "tuple[TraceRun, ...]") -> list[dict[str, str]]:
    return [{"source": run.source, "run": run.run, "format": run.format.value} for run in runs]

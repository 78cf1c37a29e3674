"""torchstone ops: the ops of the database, their configurations, and how much of a model is tested."""

from typing import TYPE_CHECKING

import click

from torchstone.cli.database_options import db_option, filter_options
from torchstone.cli.options import DefaultCommandGroup, Session, common_options, json_option, request_from
from torchstone.cli.progress import TerminalProgress
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE
from torchstone.units import many
from torchstone.workflows.database import ConfigurationFilter

if TYPE_CHECKING:
    from torchstone.record.config import SeenConfiguration

OPS_SCHEMA = "torchstone/ops/1"
OP_SCHEMA = "torchstone/op-configurations/1"
COVERAGE_SCHEMA = "torchstone/op-coverage/1"


@click.group(
    cls=DefaultCommandGroup, default="show", runs_alone=True, context_settings={"help_option_names": ["-h", "--help"]}
)
def command() -> None:
    """List the configurations in which models call an op, from the database.

    `torchstone ops` (short for `ops show`) lists all ops, `torchstone ops NAME` shows each configuration of one op.
    `torchstone ops coverage MODEL --backend B` shows how much of a model is covered by passing tests.
    """


@command.command("show", short_help="List all ops, or each configuration of one op.")
@click.argument("name", required=False)
@filter_options
@click.option("--all", "each", is_flag=True, help="Show near duplicates one by one.")
@click.option("--top", default=20, show_default=True, type=click.IntRange(min=1), help="Number of blocks to show.")
@db_option
@json_option
@common_options
@click.pass_obj
def show(
    session: Session,
    /,
    *,
    name: str | None,
    each: bool,
    top: int,
    as_json: bool,
    database: str | None,
    **filters: object,
) -> None:
    """List all ops of the database, or show each configuration of the op NAME.

    NAME is an op name such as aten.mm.default or ttnn.add; a part of it (mm, add) is enough. Configurations that differ
    only in a number, a position on a mesh or a machine are shown as one, with the values that differ.
    """
    from torchstone.workflows.configs import show_op

    wanted = request_from(ConfigurationFilter, filters)
    if name is None:
        _print_ops(session, wanted, database, as_json=as_json)
        return
    seen = show_op(name, wanted, database)
    if as_json:
        _print_document(seen)
    else:
        _print_blocks(session, seen, each=each, top=top)


def _print_ops(session: Session, wanted: ConfigurationFilter, database: str | None, *, as_json: bool) -> None:
    from torchstone.report.json_document import indented, json_document
    from torchstone.report.ops_text import operations_text
    from torchstone.report.text import coloured, plain
    from torchstone.workflows.configs import list_ops
    from torchstone.workflows.database import with_database

    operations = list_ops(wanted, database)
    if as_json:
        click.echo(indented(json_document(OPS_SCHEMA, {"operations": operations})))
        return
    click.echo(operations_text(operations, paint=coloured if session.uses_color else plain))
    total = sum(one.configurations for one in operations)
    hint = with_database("torchstone ops NAME", database)
    TerminalProgress(session).note(f"{many(total, 'configuration')} of {many(len(operations), 'op')}; next: {hint}")


def _print_document(seen: "list[SeenConfiguration]") -> None:
    from torchstone.report.json_document import indented, json_document
    from torchstone.report.ops_text import config_value_text

    configurations = [
        {
            "key": one.key,
            "op": one.configuration.op,
            "calls": one.calls,
            "models": sorted({place.model for place in one.occurrences if place.model}),
            "arguments": {part.name: config_value_text(part.value) for part in one.configuration.arguments},
            "record": one,
        }
        for one in seen
    ]
    click.echo(indented(json_document(OP_SCHEMA, {"configurations": configurations})))


def _print_blocks(session: Session, seen: "list[SeenConfiguration]", *, each: bool, top: int) -> None:
    from torchstone.configs.families import Family, families_of
    from torchstone.report.ops_text import family_text
    from torchstone.report.text import coloured, plain

    families = tuple(Family(members=(one,)) for one in seen) if each else families_of(seen)
    paint = coloured if session.uses_color else plain
    click.echo("\n\n".join(family_text(family.members, paint=paint) for family in families[:top]))
    hidden = f", {many(len(families) - top, 'block')} not shown (--top)" if len(families) > top else ""
    TerminalProgress(session).note(f"{many(len(seen), 'configuration')} in {many(len(families), 'block')}{hidden}")


@command.command(short_help="Show how much of a model is covered by passing tests.")
@click.argument("model", required=False)
@click.option("--backend", required=True, metavar="NAME", help="The backend that `torchstone sweep run` ran on.")
@click.option("--top", default=20, show_default=True, type=click.IntRange(min=1), help="Number of ops to show.")
@db_option
@json_option
@common_options
@click.pass_obj
def coverage(session: Session, /, *, top: int, as_json: bool, **fields: object) -> int:
    """Show which share of the calls of MODEL is covered by vectors that pass on a backend.

    MODEL is a model name in the database, or a part of it; without it, all models are counted, and the ops that no
    vector tested are listed with the number of models that use them, most first. A call counts as covered if the newest
    result of its configuration on the backend passed. The exit code is 1 if a configuration fails or was not tested.
    """
    from torchstone.report.json_document import indented, json_document
    from torchstone.report.ops_text import coverage_text, untested_text
    from torchstone.report.text import coloured, plain
    from torchstone.workflows.configs import CoverageRequest, measure_coverage

    request = request_from(CoverageRequest, fields)
    result = measure_coverage(request)
    found = result.coverage
    if as_json:
        totals = {name: getattr(found, name) for name in ("calls", "passed_calls", "failed_calls", "share")}
        click.echo(indented(json_document(COVERAGE_SCHEMA, totals, found)))
    else:
        text = untested_text if request.model is None else coverage_text
        click.echo(text(found, top=top, paint=coloured if session.uses_color else plain))
        if not result.has_results:
            backend = request.backend
            note = f"no sweep ran on {backend} yet; next: torchstone sweep run --backend {backend}"
            TerminalProgress(session).note(note)
    return EXIT_FINE if found.passed == found.configurations else EXIT_FINDINGS

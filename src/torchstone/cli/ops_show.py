"""torchstone ops show [NAME]: a table of all ops, or each configuration of one."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.db_options import db_option, filter_options, open_store, query_of, with_database
from torchstone.cli.options import Session, common_options, json_option
from torchstone.errors import InputError

if TYPE_CHECKING:
    from torchstone.record.config import OpSummary, SeenConfiguration
    from torchstone.store.database import Store
    from torchstone.store.reading import Query

OPS_SCHEMA = "torchstone/ops/1"
OP_SCHEMA = "torchstone/op-configurations/1"


@click.command(short_help="All ops, or each configuration of one.")
@click.argument("name", required=False)
@filter_options
@click.option("--all", "each", is_flag=True, help="Show near duplicates one by one.")
@click.option("--top", default=20, show_default=True, type=click.IntRange(min=1), help="Show so many blocks.")
@db_option
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, name: str | None, *, database: str | None, as_json: bool, **given: Any) -> None:
    """Show all ops of the database, or every way to call the op NAME.

    NAME is an op such as aten.mm.default or ttnn.add; a part of it (mm, add) is enough. Configurations that differ in a
    number, a place on a mesh or a machine only are shown as one, with the values that differ.
    """
    each, top = given.pop("each"), given.pop("top")
    with open_store(database) as store:
        query = query_of(store, **given)
        if name is None:
            hint = with_database("torchstone ops NAME", database)
            _show_table(session, store.operations(query), hint, as_json=as_json)
            return
        ops = _ops_named(store, name)
        seen = [_within(query, one) for op in ops for one in store.configurations(_for_op(query, op))]
    if as_json:
        _print_document(seen)
    else:
        _show_blocks(session, seen, each=each, top=top)


def _show_table(session: Session, operations: "Sequence[OpSummary]", hint: str, *, as_json: bool) -> None:
    import msgspec

    from torchstone.report.ops_text import operations_text
    from torchstone.report.text import coloured, plain

    if as_json:
        document = {"schema": OPS_SCHEMA, "operations": operations}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=1))
        return
    click.echo(operations_text(operations, paint=coloured if session.uses_color else plain))
    if not session.quiet:
        total = sum(one.configurations for one in operations)
        click.echo(f"{total} configurations of {len(operations)} ops; next: {hint}", err=True)


def _for_op(query: "Query", op: str) -> "Query":
    import msgspec

    return msgspec.structs.replace(query, op=op)


def _within(query: "Query", seen: "SeenConfiguration") -> "SeenConfiguration":
    """A configuration with only those places that were asked for."""
    import msgspec

    places = tuple(
        place
        for place in seen.occurrences
        if (query.models is None or place.model in query.models)
        and (query.sources is None or place.source in query.sources)
    )
    return msgspec.structs.replace(seen, occurrences=places)


def _ops_named(store: "Store", name: str) -> list[str]:
    """The op of this name, or all that have it as a part."""
    known = store.op_names()
    if name in known:
        return [name]
    wanted = name.replace("::", ".")
    found = [op for op in known if wanted == op or f".{wanted}." in f".{op}."]
    if found:
        return found
    parts = {part: op for op in known for part in (*op.split("."), op)}
    near = [op for op in known if wanted.lower() in op.lower()][:3] or [
        parts[part] for part in get_close_matches(wanted, parts, n=3)
    ]
    hint = f"; did you mean {' or '.join(near)}?" if near else "; `torchstone ops` lists all"
    msg = f"the database has no op {name!r}{hint}"
    raise InputError(msg)


def _print_document(seen: "list[SeenConfiguration]") -> None:
    import msgspec

    from torchstone.report.config_text import config_value_text

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
    document = {"schema": OP_SCHEMA, "configurations": configurations}
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=1))


def _show_blocks(session: Session, seen: "list[SeenConfiguration]", *, each: bool, top: int) -> None:
    from torchstone.configs.families import Family, families_of
    from torchstone.report.ops_text import family_text
    from torchstone.report.text import coloured, plain

    families = tuple(Family(members=(one,)) for one in seen) if each else families_of(seen)
    paint = coloured if session.uses_color else plain
    click.echo("\n\n".join(family_text(family.members, paint=paint) for family in families[:top]))
    if session.quiet:
        return
    hidden = f", {len(families) - top} blocks not shown (--top)" if len(families) > top else ""
    click.echo(f"{len(seen)} configurations in {len(families)} blocks{hidden}", err=True)

"""torchstone db merge OTHER...: other databases into this one."""

import click

from torchstone.cli.db_options import db_option, open_store
from torchstone.cli.options import Session, common_options
from torchstone.cli.progress import step


@click.command(short_help="Other databases, into this one.")
@click.argument("others", metavar="OTHER...", nargs=-1, required=True)
@db_option
@common_options
@click.pass_obj
def command(session: Session, /, others: tuple[str, ...], *, database: str | None) -> None:
    """Add all that the databases OTHER hold (files or URLs) to this one.

    The result is the same in any order, and merging again changes nothing.
    """
    from torchstone.store.database import Store

    for other in others:
        Store.open(other, create=False).close()  # a name that is wrong is told before anything is made
    with open_store(database, create=True) as store:
        for other in others:
            with Store.open(other, create=False) as given, step(f"merging {given.name}", session):
                added = store.add(given.configurations(), runs=given.runs())
                click.echo(f"{given.name}: {added.new} configurations were new, {added.known} were known")

"""torchstone db vacuum: give unused space back."""

import click

from torchstone.cli.db_options import db_option, open_store
from torchstone.cli.options import Session, common_options
from torchstone.cli.progress import step


@click.command(short_help="Give unused space back.")
@db_option
@common_options
@click.pass_obj
def command(session: Session, /, *, database: str | None) -> None:
    """Give unused space of the database back, and renew the statistics that queries are planned with."""
    from torchstone.store.address import file_of
    from torchstone.units import show_bytes

    with open_store(database) as store:
        path = file_of(store.engine.url)
        before = path.stat().st_size if path is not None else 0
        with step(f"vacuuming {store.name}", session):
            store.vacuum()
        sizes = f": {show_bytes(before)} -> {show_bytes(path.stat().st_size)}" if path is not None else ""
        click.echo(f"{store.name}{sizes}")

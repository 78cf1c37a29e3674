"""torchstone sweep retrace."""

import click


@click.command()
def command() -> None:
    """..."""

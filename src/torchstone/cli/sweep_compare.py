"""torchstone sweep compare."""

import click


@click.command()
def command() -> None:
    """..."""

"""torchstone sweep repro."""

import click


@click.command()
def command() -> None:
    """..."""

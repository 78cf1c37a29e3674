"""torchstone sweep report."""
import click
@click.command()
def command() -> None:
    """..."""

"""torchstone cache: the captures that are kept, so that the second question about a model needs no torch."""

import click

from torchstone.cli.options import Session, common_options
from torchstone.errors import EXIT_FINE
from torchstone.units import many


@click.group()
def command() -> None:
    """Show or delete the captures that `inspect`, `cost` and other commands keep.

    A capture is kept under the content of its source (a configuration, a .pt2 file, or all files that Python code
    read), the options, and the versions of torchstone, torch and transformers. TORCHSTONE_CACHE names the folder
    ("off": nothing is kept), TORCHSTONE_CACHE_SIZE its largest size.
    """


@command.command("info")
@common_options
@click.pass_obj
def info(session: Session, /) -> int:  # noqa: ARG001 - every command has a session
    """Show the folder, the number of captures and their size."""
    from torchstone.units import show_bytes
    from torchstone.workflows.capture_cache import cache_info

    found = cache_info()
    if found.folder is None:
        click.echo("the cache is off")
    else:
        sizes = f"{show_bytes(found.size_bytes)} of at most {show_bytes(found.limit_bytes)}"
        click.echo(f"{found.folder}: {many(found.captures, 'capture')}, {sizes}")
    return EXIT_FINE


@command.command("clear")
@common_options
@click.pass_obj
def clear(session: Session, /) -> int:  # noqa: ARG001 - every command has a session
    """Delete all captures."""
    from torchstone.units import show_bytes
    from torchstone.workflows.capture_cache import clear_cache

    found = clear_cache()
    click.echo(f"deleted {many(found.captures, 'capture')} ({show_bytes(found.size_bytes)})")
    return EXIT_FINE

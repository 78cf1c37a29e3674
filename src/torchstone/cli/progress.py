"""Progress on stderr: what is being done, for whoever waits."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from torchstone.cli.options import Session


@contextmanager
def step(what: str, session: Session) -> Iterator[None]:
    """Say what is going on while it lasts, and how long it took; quiet where nobody watches."""
    if session.quiet or not sys.stderr.isatty() or "CI" in os.environ:
        yield
        return
    click.echo(f"{what} ...", err=True, nl=False)
    start = time.perf_counter()
    try:
        yield
    finally:
        click.echo(f"\r\x1b[2K{what}: {time.perf_counter() - start:.1f} s", err=True)

"""Progress on stderr: the running step with its time in a terminal, notes as plain lines."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import click

from torchstone.cli.options import Session


@dataclass(frozen=True, slots=True)
class TerminalProgress:
    """The progress of a workflow, shown as the session asks for it."""

    session: Session

    def step(self, title: str) -> AbstractContextManager[None]:
        """Show what is going on while it lasts, and how long it took."""
        return step(title, self.session)

    def note(self, text: str) -> None:
        """Print one line, unless the session is quiet."""
        if not self.session.quiet:
            click.echo(text, err=True)


@contextmanager
def step(what: str, session: Session) -> Iterator[None]:
    """Say what is going on while it lasts, and how long it took; silent where no terminal shows it."""
    if session.quiet or not sys.stderr.isatty() or "CI" in os.environ:
        yield
        return
    click.echo(f"{what} ...", err=True, nl=False)
    start = time.perf_counter()
    try:
        yield
    finally:
        click.echo(f"\r\x1b[2K{what}: {time.perf_counter() - start:.1f} s", err=True)

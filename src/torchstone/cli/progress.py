"""Progress on stderr: the running step with its time in a terminal, notes as plain lines."""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import Session
from torchstone.units import show_seconds

if TYPE_CHECKING:
    from torchstone.check.check_model import Observer
    from torchstone.check.runner import Answer

_REDRAW_S = 0.1
_DEFAULT_WIDTH = 80
_OUTCOMES = (
    "passed", "wrong", "unsupported", "compile error", "raised", "crashed", "timed out", "out of memory",
    "machine too busy", "not run",
)  # fmt: skip


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


class CheckProgress:
    """One line on stderr: the step of a check, counts by outcome, the rate, and the time left."""

    def __init__(self, session: Session) -> None:
        self._shown = not session.quiet and sys.stderr.isatty() and "CI" not in os.environ
        self._quiet = session.quiet
        self._counts: Counter[str] = Counter()
        self._fresh = 0
        self._step = ""
        self._waiting = 0
        self._began_s = time.monotonic()
        self._first_s: float | None = None
        self._drawn_s = 0.0

    def watching(self) -> "Observer":
        """The record that a check reports to."""
        from torchstone.check.check_model import Observer

        return Observer(step=self.step, note=self.note, on_answer=self.on_answer)

    def step(self, what: str) -> None:
        """Show a new step."""
        self._step = what
        self._draw(always=True)

    def note(self, text: str) -> None:
        """Print a line that stays, unless the session is quiet."""
        if not self._quiet:
            self.close()
            click.echo(text, err=True)

    def on_answer(self, answered: "Answer") -> None:
        """Count one result."""
        if self._first_s is None:
            self._first_s = time.monotonic()
        self._counts[answered.result.outcome.value] += 1
        self._fresh += answered.fresh
        self._waiting = answered.waiting
        self._draw(always=False)

    def close(self) -> None:
        """Clear the line."""
        if self._shown:
            click.echo("\r\x1b[2K", err=True, nl=False)

    def line(self) -> str:
        """The text of the line."""
        parts = [self._step]
        counts = [f"{self._counts[name]} {name}" for name in _OUTCOMES if self._counts[name]]
        if counts:
            parts.append(", ".join(counts))
        since_s = time.monotonic() - (self._first_s or time.monotonic())
        if self._fresh > 1 and since_s > 0:
            rate = self._fresh / since_s
            parts.append(f"{rate:.1f}/s")
            if self._waiting:
                parts.append(f"{self._waiting} to go, about {show_seconds(self._waiting / rate)}")
        return "  ".join(parts)

    def _draw(self, *, always: bool) -> None:
        now_s = time.monotonic()
        if not self._shown or (not always and now_s - self._drawn_s < _REDRAW_S):
            return
        self._drawn_s = now_s
        width = os.get_terminal_size(sys.stderr.fileno()).columns or _DEFAULT_WIDTH  # 0: the terminal does not say
        click.echo(f"\r\x1b[2K{self.line()[: width - 1]}", err=True, nl=False)

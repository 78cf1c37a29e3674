"""Progress on stderr: the running step with its time in a terminal, notes as plain lines."""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import Session
from torchstone.cli.terminal import REDRAWN, limited
from torchstone.units import show_seconds

if TYPE_CHECKING:
    from torchstone.check.check_model import Observer
    from torchstone.check.runner import Answer
    from torchstone.record.vector import VectorResult

QUIET_S = 30.0  # the longest time without a line where there is no terminal
_REDRAW_S = 0.1
_BETWEEN_S = 0.2  # the counter of results is redrawn five times a second
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
            click.echo(limited(text), err=True)


def _is_terminal() -> bool:
    """Whether a line may be redrawn; elsewhere progress is plain lines, and few of them."""
    return sys.stderr.isatty() and "CI" not in os.environ


class Heartbeat:
    """Prints a line now and then while something takes long, where no terminal shows that it is alive."""

    def __init__(self, line: Callable[[], str]) -> None:
        self._line = line
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Print no more."""
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        began_s = time.monotonic()
        while not self._ended.wait(QUIET_S):
            click.echo(f"{self._line()} ({show_seconds(time.monotonic() - began_s)} so far)", err=True)


@contextmanager
def step(what: str, session: Session) -> Iterator[None]:
    """Say what is going on while it lasts, and how long it took; without a terminal only when it takes long."""
    if session.quiet:
        yield
        return
    if not _is_terminal():
        heartbeat = Heartbeat(lambda: what)
        try:
            yield
        finally:
            heartbeat.close()
        return
    click.echo(f"{what} ...", err=True, nl=False)
    start = time.perf_counter()
    try:
        yield
    finally:
        click.echo(f"{REDRAWN}{what}: {time.perf_counter() - start:.1f} s", err=True)


class CheckProgress:
    """The step of a check, counts by outcome, the rate, and the time left: one line that is redrawn in a terminal.

    Without a terminal: a line for each step, and one every `QUIET_S` seconds.
    """

    def __init__(self, session: Session) -> None:
        self._shown = not session.quiet and _is_terminal()
        self._plain = not session.quiet and not _is_terminal()
        self._heartbeat: Heartbeat | None = None
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
        if self._plain:
            click.echo(f"{what} ...", err=True)
            self._heartbeat = self._heartbeat or Heartbeat(self.line)
        self._draw(always=True)

    def note(self, text: str) -> None:
        """Print a line that stays, unless the session is quiet."""
        if not self._quiet:
            if self._shown:
                click.echo(REDRAWN, err=True, nl=False)
            click.echo(limited(text), err=True)

    def on_answer(self, answered: "Answer") -> None:
        """Count one result."""
        if self._first_s is None:
            self._first_s = time.monotonic()
        self._counts[answered.result.outcome.value] += 1
        self._fresh += answered.fresh
        self._waiting = answered.waiting
        self._draw(always=False)

    def close(self) -> None:
        """Clear the line, and print no more."""
        if self._heartbeat is not None:
            self._heartbeat.close()
            self._heartbeat = None
        if self._shown:
            click.echo(REDRAWN, err=True, nl=False)

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
        click.echo(f"{REDRAWN}{self.line()[: width - 1]}", err=True, nl=False)


class ResultCounter:
    """How many vectors have ended and failed, redrawn in one line of a terminal."""

    def __init__(self, total: int, session: Session) -> None:
        """Count up to `total`; nothing is drawn where there is no terminal or in CI."""
        self._total = total
        self._failed: dict[str, bool] = {}
        self._shown_s = 0.0
        self._watched = not session.quiet and sys.stderr.isatty() and "CI" not in os.environ

    def __enter__(self) -> "ResultCounter":
        """Begin to count."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the line."""
        if self._watched:
            click.echo(REDRAWN, err=True, nl=False)

    def count(self, result: "VectorResult") -> None:
        """Count one result; a retried vector counts once, by its last."""
        from torchstone.record.vector import FAILED

        self._failed[result.id] = result.status in FAILED
        now_s = time.monotonic()
        if self._watched and now_s - self._shown_s > _BETWEEN_S:
            self._shown_s = now_s
            failed = sum(self._failed.values())
            click.echo(f"{REDRAWN}{len(self._failed):,} of {self._total:,}, {failed:,} failed", err=True, nl=False)

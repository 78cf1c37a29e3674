"""How far a check has come, in one line on stderr."""

import os
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import Session
from torchstone.units import show_seconds

if TYPE_CHECKING:
    from torchstone.check.asking import Answered
    from torchstone.check.checking import Watching

_PAUSE_S = 0.1
_USUAL_WIDTH = 80
_ORDER = (
    "passed",
    "wrong",
    "unsupported",
    "compile error",
    "raised",
    "crashed",
    "timed out",
    "out of memory",
    "not run",
)


class CheckProgress:
    """Says what goes on: the step, counts by outcome, the rate, and how long what is asked will take."""

    def __init__(self, session: Session) -> None:
        self._shown = not session.quiet and sys.stderr.isatty() and "CI" not in os.environ
        self._counts: Counter[str] = Counter()
        self._fresh = 0
        self._step = ""
        self._waiting = 0
        self._began_s = time.monotonic()
        self._first_s: float | None = None
        self._drawn_s = 0.0

    def watching(self) -> "Watching":
        """What a check calls."""
        from torchstone.check.checking import Watching

        return Watching(step=self.step, told=self.told)

    def step(self, what: str) -> None:
        """A new step begins."""
        self._step = what
        self._draw(always=True)

    def told(self, answered: "Answered") -> None:
        """An answer came."""
        if self._first_s is None:
            self._first_s = time.monotonic()
        self._counts[answered.result.outcome.value] += 1
        self._fresh += answered.fresh
        self._waiting = answered.waiting
        self._draw(always=False)

    def close(self) -> None:
        """Leave the line as it is no longer needed."""
        if self._shown:
            click.echo("\r\x1b[2K", err=True, nl=False)

    def line(self) -> str:
        """What is shown."""
        parts = [self._step]
        told = [f"{self._counts[name]} {name}" for name in _ORDER if self._counts[name]]
        if told:
            parts.append(", ".join(told))
        since_s = time.monotonic() - (self._first_s or time.monotonic())
        if self._fresh > 1 and since_s > 0:
            rate = self._fresh / since_s
            parts.append(f"{rate:.1f}/s")
            if self._waiting:
                parts.append(f"{self._waiting} to go, about {show_seconds(self._waiting / rate)}")
        return "  ".join(parts)

    def _draw(self, *, always: bool) -> None:
        now_s = time.monotonic()
        if not self._shown or (not always and now_s - self._drawn_s < _PAUSE_S):
            return
        self._drawn_s = now_s
        width = os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_WIDTH  # 0: the terminal does not say
        click.echo(f"\r\x1b[2K{self.line()[: width - 1]}", err=True, nl=False)

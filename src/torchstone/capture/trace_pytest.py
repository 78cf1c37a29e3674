"""A pytest plugin that records the op calls of each test apart; needs pytest alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, Protocol, TypeVar

import pytest


class Recorder(Protocol):
    """What records the calls of one test."""

    def opened(self) -> AbstractContextManager[None]:
        """While open, calls are recorded."""


R = TypeVar("R", bound=Recorder)


class RecordingPlugin(Generic[R]):
    """Gives every test, with its fixtures, a recording of its own, and remembers how it ended."""

    def __init__(self, new_recording: Callable[[str], R]) -> None:
        self.recordings: dict[str, R] = {}
        self.endings: dict[str, str] = {}  # passed, failed or skipped
        self.details: dict[str, str] = {}
        self._new_recording = new_recording

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Record what fixtures do: models are often built and run there."""
        self.recordings[item.nodeid] = self._new_recording(item.nodeid)
        with self.recordings[item.nodeid].opened():
            yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Record the test itself."""
        with ExitStack() as kept:
            kept.enter_context(self.recordings[item.nodeid].opened())
            yield

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Learn how setup, call and teardown ended: one that fails fails the test."""
        name = report.nodeid
        if report.failed:
            self.endings[name] = "failed"
            self.details.setdefault(name, _failure_text(report))
        elif report.skipped:  # an expected failure counts as skipped: what it ran is no example
            self.endings.setdefault(name, "skipped")
        elif report.when == "call":
            self.endings.setdefault(name, "passed")


def _failure_text(report: pytest.TestReport) -> str:
    """What went wrong, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    lines = text.strip().splitlines()
    return str(lines[0]) if lines else ""

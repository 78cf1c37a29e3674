import io
import sys
import threading

import pytest

from torchstone.check.runner import Answer
from torchstone.cli import progress as progress_module
from torchstone.cli.options import Session
from torchstone.cli.progress import CheckProgress, TerminalProgress, step
from torchstone.cli.terminal import MAX_ERROR_CHARACTERS, visible
from torchstone.record.check import Outcome, UnitResult


def watched(monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session with somebody at the terminal."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    return Session()


def test_a_step_says_what_it_does_and_how_long_it_took(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with step("loading net.py", watched(monkeypatch)):
        assert capsys.readouterr().err == "loading net.py ..."
    assert visible(capsys.readouterr().err) == "\r\x1b[2Kloading net.py: 0.0 s\n"


def test_a_step_that_fails_ends_its_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="broken"), step("loading net.py", watched(monkeypatch)):
        raise ValueError("broken")
    assert capsys.readouterr().err.endswith(" s\n")


def test_a_quiet_step_says_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    session = watched(monkeypatch)
    session.quiet = True
    with step("loading net.py", session):
        pass
    assert capsys.readouterr().err == ""


def test_a_step_in_ci_says_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with step("loading net.py", watched(monkeypatch)):
        pass
    assert capsys.readouterr().err == ""


def test_a_step_that_nobody_watches_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with step("loading net.py", Session()):
        pass
    assert capsys.readouterr().err == ""


def answered(outcome: Outcome, waiting: int = 0) -> Answer:
    return Answer(name="x", result=UnitResult(outcome=outcome), fresh=True, waiting=waiting)


def test_the_line_counts_outcomes_and_says_what_is_left() -> None:
    progress = CheckProgress(Session())
    progress.step("running modules")
    for outcome in (Outcome.PASSED, Outcome.WRONG, Outcome.PASSED):
        progress.on_answer(answered(outcome, waiting=5))

    line = progress.line()
    progress.close()

    assert line.startswith("running modules  2 passed, 1 wrong  ")
    assert "/s  5 to go, about " in line


def test_a_quiet_session_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    progress = CheckProgress(Session(quiet=True))

    progress.watching().step("loading")
    progress.on_answer(answered(Outcome.PASSED))
    progress.close()

    assert stderr.getvalue() == ""


def test_without_a_terminal_steps_are_lines_and_long_ones_are_heard_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = threading.Event()
    monkeypatch.setattr(progress_module, "QUIET_S", 0.01)
    shown = CheckProgress(Session())

    def line() -> str:
        said.set()
        return CheckProgress.line(shown)

    monkeypatch.setattr(shown, "line", line)
    shown.step("running modules")
    assert said.wait(60)
    shown.close()

    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "running modules ..."
    assert lines[1].startswith("running modules (")
    assert lines[1].endswith(" so far)")


def test_a_note_has_a_limited_length(capsys: pytest.CaptureFixture[str]) -> None:
    for progress in (TerminalProgress(Session()), CheckProgress(Session())):
        progress.note("a name: " + "x" * 100_000)

        assert len(capsys.readouterr().err) < MAX_ERROR_CHARACTERS + 10

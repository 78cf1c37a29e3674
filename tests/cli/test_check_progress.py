import io

import pytest

from torchstone.check.asking import Answered
from torchstone.cli.check_progress import CheckProgress
from torchstone.cli.options import Session
from torchstone.record.check import Outcome, UnitResult


def answered(outcome: Outcome, waiting: int = 0) -> Answered:
    return Answered(name="x", result=UnitResult(outcome=outcome), fresh=True, waiting=waiting)


def test_the_line_counts_outcomes_and_says_what_is_left() -> None:
    progress = CheckProgress(Session())
    progress.step("running modules")
    for outcome in (Outcome.PASSED, Outcome.WRONG, Outcome.PASSED):
        progress.told(answered(outcome, waiting=5))

    line = progress.line()

    assert line.startswith("running modules  2 passed, 1 wrong  ")
    assert "/s  5 to go, about " in line


def test_nothing_is_written_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    progress = CheckProgress(Session())

    progress.watching().step("loading")
    progress.told(answered(Outcome.PASSED))
    progress.close()

    assert stderr.getvalue() == ""

import sys
from pathlib import Path

import pytest

from tests.memory.logs import log_in
from torchstone.cli.memory_options import ReadingProgress, read_timeline, tell_written, warn
from torchstone.cli.options import Session


def test_progress_shows_once_reading_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, _ = log_in(tmp_path)
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.delenv("CI", raising=False)
    progress = ReadingProgress(Session(), str(log))

    progress(10)
    now[0] = 2.0
    progress(log.stat().st_size // 2)
    progress.clear()

    shown = capsys.readouterr().err
    assert "reading the log  50%" in shown
    assert shown.count("MB/s") == 1


def test_nobody_who_does_not_watch_is_bothered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, _ = log_in(tmp_path)
    read_timeline(Session(), str(log))
    assert capsys.readouterr().err == ""


def test_quiet_hides_warnings_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, _ = log_in(tmp_path)
    cut = tmp_path / "cut.log"
    cut.write_bytes(log.read_bytes()[:-40])
    timeline = read_timeline(Session(), str(cut))

    warn(Session(quiet=True), timeline)
    tell_written(Session(quiet=True), cut)
    assert capsys.readouterr().err == ""

    warn(Session(), timeline)
    assert "warning:" in capsys.readouterr().err

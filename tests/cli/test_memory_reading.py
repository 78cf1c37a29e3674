import sys
from pathlib import Path

import pytest

from tests.memory.logs import log_in
from torchstone.cli.memory import ReadingProgress, watching
from torchstone.cli.options import Session
from torchstone.cli.progress import TerminalProgress
from torchstone.workflows.memory import LogRequest, ReportRequest, parse_memory, read_memory


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
    read_memory(LogRequest(source=str(log)), watch=watching(Session()))
    assert capsys.readouterr().err == ""


def test_quiet_hides_warnings_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, _ = log_in(tmp_path)
    cut = tmp_path / "cut.log"
    cut.write_bytes(log.read_bytes()[:-40])
    request = ReportRequest(source=str(cut), directory=tmp_path / "out")

    parse_memory(request, TerminalProgress(Session(quiet=True)))
    assert capsys.readouterr().err == ""

    parse_memory(request, TerminalProgress(Session()))
    shown = capsys.readouterr().err
    assert "warning:" in shown
    assert f"wrote {tmp_path / 'out' / 'cut_memory.json'}" in shown

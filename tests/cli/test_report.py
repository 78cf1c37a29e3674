import json
from pathlib import Path

import pytest

from tests.report.folders import folder_of
from tests.report.traces import transformer
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE


def test_report_prints_the_path_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(transformer(1), tmp_path)

    assert run(["report", str(folder)]) == EXIT_FINE
    printed = capsys.readouterr()
    assert printed.out == f"{folder / 'report.html'}\n"
    assert "torchstone serve" in printed.err


def test_report_as_json_says_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(transformer(1), tmp_path)

    assert run(["report", str(folder), "--json", "--no-source", "--quiet"]) == EXIT_FINE
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["size_bytes"] == (folder / "report.html").stat().st_size
    assert document["source"] is False
    assert printed.err == ""


def test_a_folder_that_is_not_there_is_wrong_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(tmp_path / "missing")]) == EXIT_BAD_INPUT
    assert "contains no results to render" in capsys.readouterr().err

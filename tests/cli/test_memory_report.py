import json
from pathlib import Path

import pytest

from tests.memory.logs import log_in
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE


def test_a_log_becomes_a_page_with_a_twin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, truth = log_in(tmp_path)

    assert run(["memory", "report", str(log), "--dir", str(tmp_path / "out")]) == EXIT_FINE

    page = tmp_path / "out" / "my-net_report.html"
    assert capsys.readouterr().out.strip() == str(page)
    assert page.read_bytes().startswith(b"<!doctype html>")
    twin = json.loads(page.with_suffix(".json").read_text())
    assert twin["sections"]["memory"]["operations"] == len(truth.rows)
    assert set(twin["sections"]) == {"memory", "peaks", "buffers", "padding", "inputs"}


def test_a_folder_is_rendered_again_without_the_log(tmp_path: Path) -> None:
    log, _ = log_in(tmp_path)
    run(["memory", "report", str(log), "--dir", str(tmp_path / "out")])
    page = tmp_path / "out" / "my-net_report.html"
    before = page.read_bytes()
    page.unlink()
    log.unlink()

    assert run(["memory", "report", str(tmp_path / "out")]) == EXIT_FINE
    assert page.read_bytes() == before


def test_an_empty_folder_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "report", str(tmp_path)]) == EXIT_BAD_INPUT
    assert "memory parse" in capsys.readouterr().err

import json
from pathlib import Path

import pytest

from tests.cli.databases import database_in
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE


def test_the_document_has_its_fixed_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "info", "--db", database_in(tmp_path), "--json"]) == EXIT_FINE

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/db-info/1"
    assert {key: document[key] for key in ("configurations", "operations", "sources", "calls")} == {
        "configurations": 6,
        "operations": 4,
        "sources": 2,
        "calls": 87,
    }
    assert {trace["format"] for trace in document["traces"]} == {"aten_text", "ttnn_master_v2"}


def test_the_terminal_shows_numbers_and_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "info", "--db", database_in(tmp_path)]) == EXIT_FINE

    shown = capsys.readouterr().out
    assert "configurations  6" in shown
    assert "albert.txt" in shown


def test_a_missing_database_names_the_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "info", "--db", str(tmp_path / "x.db")]) == EXIT_BAD_INPUT

    assert "torchstone db import" in capsys.readouterr().err

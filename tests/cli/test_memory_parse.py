import json
from pathlib import Path

import pytest

from tests.memory.logs import log_in
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE


def test_documents_land_where_people_look_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTMEM_HOME", str(tmp_path / "home"))
    log, truth = log_in(tmp_path)

    assert run(["memory", "parse", str(log)]) == EXIT_FINE

    folder = tmp_path / "home" / "reports" / "my-net"
    memory = json.loads((folder / "my-net_memory.json").read_text())
    operations = json.loads((folder / "my-net_operations.json").read_text())
    registry = json.loads((folder / "my-net_inputs_registry.json").read_text())
    assert len(memory["operations"]) == len(operations["operations"]) == len(truth.rows)
    assert {row["kind"] for row in registry["arguments"]} == {"parameter", "constant", "input"}
    assert "torchstone memory report" in capsys.readouterr().err


def test_the_folder_and_name_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, _ = log_in(tmp_path)

    assert run(["memory", "parse", str(log), "--dir", str(tmp_path / "out"), "--name", "a_b", "--json"]) == EXIT_FINE

    assert (tmp_path / "out" / "a-b_memory.json").exists()
    assert json.loads(capsys.readouterr().out)["directory"] == str(tmp_path / "out")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, _ = log_in(tmp_path)
    (tmp_path / "file").write_text("in the way")

    assert run(["memory", "parse", str(log), "--dir", str(tmp_path / "file" / "x")]) == EXIT_BAD_INPUT
    assert "--dir" in capsys.readouterr().err

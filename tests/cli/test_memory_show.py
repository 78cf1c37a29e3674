import json
from pathlib import Path

import pytest

from tests.memory.log_generator.style import Style
from tests.memory.logs import log_in
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE


def test_the_terminal_shows_the_peak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, truth = log_in(tmp_path)

    assert run(["memory", "show", str(log)]) == EXIT_FINE

    shown = capsys.readouterr()
    assert f"{truth.peak('DRAM') / 1000:.3f} MiB" in shown.out
    assert "live at the DRAM peak" in shown.out
    assert shown.err == ""


def test_the_document_has_its_fixed_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, truth = log_in(tmp_path)

    assert run(["memory", "show", str(log), "--json"]) == EXIT_FINE

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/memory-summary/1"
    assert document["summary"]["operations"] == len(truth.rows)
    assert document["oom"] is None
    assert all({"operation_index", "logical_bytes", "padded_bytes"} <= set(row) for row in document["padding"])


def test_one_op_is_shown_with_what_was_alive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, truth = log_in(tmp_path)
    op = len(truth.rows) - 2

    assert run(["memory", "show", str(log), "--op", str(op), "--top", "2"]) == EXIT_FINE

    shown = capsys.readouterr().out
    assert f"op {op}: " in shown
    assert "live in DRAM before it" in shown


def test_an_op_beyond_the_end_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, truth = log_in(tmp_path)

    assert run(["memory", "show", str(log), "--op", "99999"]) == EXIT_BAD_INPUT
    assert f"0 to {len(truth.rows) - 1}" in capsys.readouterr().err


def test_a_file_without_runtime_lines_is_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.log").write_text("nothing here\n")

    assert run(["memory", "show", str(tmp_path / "x.log")]) == EXIT_BAD_INPUT
    assert "Executing operation" in capsys.readouterr().err


def test_a_damaged_log_is_shown_with_a_note_and_exit_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, _ = log_in(tmp_path)
    log.write_bytes(log.read_bytes()[:-300])

    assert run(["memory", "show", str(log)]) == EXIT_FINE
    assert "note:" in capsys.readouterr().out


def test_one_rank_of_many_can_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, _ = log_in(tmp_path, style=Style(ranks=2))

    assert run(["memory", "show", str(log), "--rank", "1,1"]) == EXIT_FINE
    assert run(["memory", "show", str(log), "--rank", "5,5"]) == EXIT_BAD_INPUT
    assert "1,0, 1,1" in capsys.readouterr().err

import json
from pathlib import Path

import pytest

from tests.memory.logs import log_in
from torchstone.cli.main import run
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE


def test_equal_runs_are_called_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, _ = log_in(tmp_path)

    assert run(["memory", "compare", str(log), str(log), "--max-growth", "0"]) == EXIT_FINE
    assert "the op sequences are identical" in capsys.readouterr().out


def test_a_peak_that_grew_too_much_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [log_in(tmp_path, seed=seed, name=f"{seed}.log") for seed in (3, 8)]
    small, large = sorted(logs, key=lambda one: one[1].peak("DRAM"))
    arguments = ["memory", "compare", str(small[0]), str(large[0])]

    assert run([*arguments, "--max-growth", "1"]) == EXIT_FINDINGS
    assert "DRAM peak grew" in capsys.readouterr().err
    assert run([*arguments, "--max-growth", "1000000"]) == EXIT_FINE


def test_the_document_counts_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (log_in(tmp_path, seed=seed, name=f"{seed}.log")[0] for seed in (3, 8))

    run(["memory", "compare", str(first), str(second), "--json"])

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/memory-comparison/1"
    assert document["removed_operations"] > 0
    assert document["first_difference"] is not None
    assert set(document["peak"]) == {"DRAM", "L1", "L1_SMALL", "TRACE"}


def test_a_page_can_be_written_too(tmp_path: Path) -> None:
    first, second = (log_in(tmp_path, seed=seed, name=f"{seed}.log")[0] for seed in (3, 8))

    assert run(["memory", "compare", str(first), str(second), "--dir", str(tmp_path / "out")]) == EXIT_FINE
    assert (tmp_path / "out" / "comparison_report.html").read_bytes().startswith(b"<!doctype html>")

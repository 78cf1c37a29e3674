import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.repository import ROOT
from tests.attacks.fault_runs import build_shim

SCRIPT = ROOT / "tools" / "faults.py"


def run(progress: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [sys.executable, SCRIPT, "--progress", progress, "--command", "report", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def lines(progress: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in progress.read_text(encoding="utf-8").splitlines()]


def point(nth: int, outcome: str, *, call: str = "rename", error: str = "EACCES") -> str:
    named = {"command": "report", "workers": False, "call": call, "nth": nth, "error": error}
    return json.dumps({**named, "outcome": outcome, "problems": []}) + "\n"


def test_every_call_fails_with_every_error_and_what_is_over_is_not_run_again(tmp_path: Path) -> None:
    if build_shim(tmp_path) is None:
        pytest.skip("there is no C compiler, or the system does not preload libraries")
    progress = tmp_path / "faults.jsonl"

    done = run(progress, "--call", "rename")

    assert done.returncode == 0, done.stdout + done.stderr
    (calls,) = [one["calls"] for one in lines(progress) if "calls" in one]
    over = [one for one in lines(progress) if "nth" in one]
    assert calls > 0
    assert [(one["nth"], one["error"]) for one in over] == [
        (nth, error) for nth in range(1, calls + 1) for error in ("EACCES", "ENOSPC")
    ]
    assert f"| report | rename | {2 * calls} | {2 * calls} | 0 | 0 | 0 |" in done.stdout

    run(progress, "--call", "rename")

    assert [one for one in lines(progress) if "nth" in one] == over


def test_totals_count_what_failed_was_not_reached_and_is_left_and_a_cut_line_is_dropped(tmp_path: Path) -> None:
    progress = tmp_path / "faults.jsonl"
    calls = json.dumps({"command": "report", "call": "rename", "calls": 3}) + "\n"
    progress.write_text(
        calls + point(1, "survived") + point(1, "failed", error="ENOSPC") + point(2, "not reached") + "{"
    )

    done = run(progress, "--totals")

    assert done.returncode == 1
    assert "| report | rename | 6 | 1 | 1 | 1 | 3 |" in done.stdout
    assert progress.read_text().endswith("}\n")

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.programs import EXAMPLE

MAIN = "from torchstone.cli.tt_model_analysis import main; main()"
INPUTS = EXAMPLE.replace("load_model", "get_inputs")


def tt_model_analysis(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *arguments], capture_output=True, text=True, check=False, timeout=600
    )


@pytest.mark.heavy
def test_it_writes_the_files_people_know(tmp_path: Path) -> None:
    done = tt_model_analysis(
        "--model-path", EXAMPLE, "--inputs-path", INPUTS, "--dir", str(tmp_path), "--backend", "eager", "--root-only"
    )

    assert done.returncode == 0, done.stderr
    for name in ("unique_modules.json", "summary.md", "analysis_report.html", "irs/mod_000_root/aten.txt"):
        assert (tmp_path / name).is_file()


def test_without_the_hardware_it_says_what_is_missing(tmp_path: Path) -> None:
    done = tt_model_analysis("--model-path", EXAMPLE, "--inputs-path", INPUTS, "--dir", str(tmp_path))

    assert done.returncode == 2
    assert "backend tt cannot run here" in done.stderr

from pathlib import Path

import pytest

from tests.cli.test_memory_run import script_that_prints
from tests.memory.logs import log_in
from torchstone.cli.main import run
from torchstone.cli.tt_memory_profiler import command
from torchstone.errors import EXIT_BAD_INPUT


def profiler(*arguments: str | Path) -> int:
    return run([str(one) for one in arguments], program=command, name="tt-memory-profiler")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TTMEM_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "reports"


def test_a_script_is_run_saved_parsed_and_shown(tmp_path: Path, home: Path) -> None:
    script = script_that_prints(tmp_path, log_in(tmp_path)[0], code=3)

    assert profiler(script, "--size", "2") == 3

    names = {path.name for path in (home / "my-model").iterdir()}
    assert {"my-model.log", "my-model_memory.json", "my-model_operations.json", "my-model_report.html"} <= names


def test_each_step_can_be_taken_alone(tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = script_that_prints(tmp_path, log_in(tmp_path)[0])

    assert profiler("--log", script) == 0
    assert [path.name for path in (home / "my-model").iterdir()] == ["my-model.log"]
    assert profiler("--analyze", home / "my-model" / "my-model.log") == 0
    assert (home / "my-model" / "my-model_memory.json").exists()
    capfd.readouterr()
    assert profiler("--visualize", home / "my-model") == 0
    assert capfd.readouterr().out.strip() == str(home / "my-model" / "my-model_report.html")


def test_one_thing_at_a_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert profiler() == EXIT_BAD_INPUT
    assert profiler("--analyze", tmp_path / "a.log", tmp_path / "b.py") == EXIT_BAD_INPUT
    assert "--visualize DIR" in capfd.readouterr().err

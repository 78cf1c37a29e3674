"""Two processes with one --dir or report name: one waits or is refused with a sentence, and no file is lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.sweeps import unary, vectors_in
from tests.memory.log_generator.run import generate
from tests.memory.timelines import two_graphs
from tests.record.test_folder_lock import another_process_in
from tests.report.traces import transformer
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT
from torchstone.record import codec
from torchstone.record.vector import SweepPlan, SweepRun, SweepSettings, Vector
from torchstone.sweep.folder import new_run, read_vectors

NET = "import torch\ndef load_model():\n    return torch.nn.Linear(2, 2)\n"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "model").mkdir()
    codec.save(tmp_path / "model" / "trace.json", transformer(1))
    return tmp_path


@pytest.mark.torch
@pytest.mark.parametrize(
    "command", ["check net.py --backend eager --dir out", "analyze net.py --backend eager --dir out"]
)
def test_a_long_command_is_refused_at_once(command: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with another_process_in(work / "out"):
        assert run(command.split()) == EXIT_BAD_INPUT

    *_, error = capsys.readouterr().err.splitlines()
    assert error == (
        "torchstone: error: another torchstone command is writing to out; wait for it, or choose another --dir"
    )


@pytest.mark.parametrize("command", ["cost model --dir out", "diff model model --dir out", "report out"])
def test_a_short_command_waits_and_then_refuses(
    command: str, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in ("workflows.result_folder", "workflows.diff", "record.folder_lock"):
        monkeypatch.setattr(f"torchstone.{place}.SHORT_WRITE_S", 0.2)
    with another_process_in(work / "out"):
        assert run(command.split()) == EXIT_BAD_INPUT

    assert "another torchstone command is writing to out" in capsys.readouterr().err


def test_a_sweep_is_resumed_by_one_process_at_a_time(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vectors_in(work / "out", unary("aten.sin.default"))
    vectors: tuple[Vector, ...] = read_vectors(work / "out")[0].vectors
    plan = SweepPlan(run=SweepRun(run="r1", backend="eager"), vectors=vectors, settings=SweepSettings())
    with new_run(work / "out", plan).journal():
        assert run(["sweep", "run", "--dir", "out", "--resume"]) == EXIT_BAD_INPUT

    assert "another run is writing to" in capsys.readouterr().err


def test_reports_of_one_name_that_are_written_together_are_all_kept(work: Path) -> None:
    environment = {**os.environ, "TTMEM_HOME": str(work / "home"), "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = []
    for number in range(4):
        (work / str(number)).mkdir()
        (work / str(number) / "my.log").write_bytes(generate(two_graphs(3)[:1], passes=number + 1)[0])
        command = [sys.executable, "-m", "torchstone", "memory", "parse", f"{number}/my.log", "--dir", "out/m"]
        writers.append(subprocess.Popen(command, cwd=work, env=environment, stderr=subprocess.PIPE))

    assert [writer.communicate(timeout=600)[1] and writer.returncode for writer in writers] == [0, 0, 0, 0]
    kept = sorted(path.name for path in (work / "out").iterdir())
    assert kept == ["m", "m-2", "m-3", "m-4"]
    for name in kept:
        assert json.loads((work / "out" / name / "my_memory.json").read_bytes())["name"] == "my"


def test_two_scripts_of_one_name_have_a_log_each(work: Path) -> None:
    (work / "run.py").write_text("import time; print('hello'); time.sleep(0.5)\n", encoding="utf-8")
    environment = {**os.environ, "TTMEM_HOME": str(work / "home"), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "torchstone", "memory", "run", "--log-only", "run.py"]
    writers = [subprocess.Popen(command, cwd=work, env=environment, stdout=subprocess.DEVNULL) for _ in range(3)]

    assert [writer.wait(timeout=600) for writer in writers] == [0, 0, 0]
    logs = sorted((work / "home").rglob("*.log"))
    assert len(logs) == 3
    assert all(log.read_bytes().count(b"hello") == 1 for log in logs)

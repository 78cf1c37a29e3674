import json
from pathlib import Path

import pytest

from torchstone.cli.main import run
from torchstone.formula.database import own_entries

NET = """
import torch
from torch import nn

class Scale(nn.Module):
    def forward(self, x):
        return x * 2

class Net(nn.Sequential): pass

def load_model():
    return Net(nn.Linear(8, 4), Scale(), nn.Linear(4, 6), Scale()), torch.ones(2, 8)
"""
RIGHT = {"flops": "${elements}", "bytes": "${dtype_bytes} * ${elements}"}


def answer(flops: str, moved: str) -> str:
    memory = {"parameters": ["elements", "dtype_bytes"], "reads_template": moved, "writes_template": moved}
    flop = {"parameters": ["elements"], "formula_template": flops, "thinking_process": "one product each"}
    return json.dumps({"flop_analysis": flop, "memory_analysis": memory})


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path / "home"))
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def cost(home: Path, *answers: str, more: tuple[str, ...] = ()) -> int:
    folder = home / "answers"
    folder.mkdir()
    for number, text in enumerate(answers, start=1):
        (folder / f"{number:02}-answer.txt").write_text(text)
    replay = ["--agent", "--provider", "replay", "--answers", str(folder)]
    return run(["cost", f"{home / 'net.py'}::load_model", "--by", "formula", *replay, *more])


def test_a_right_answer_is_used_at_once_as_pending(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cost(home, answer("0", "0"), answer(RIGHT["flops"], RIGHT["bytes"])) == 0

    shown = capsys.readouterr()
    kept = [entry for entry in own_entries(home / "home").modules.values() if entry.module_path.endswith("Scale")]
    assert "coverage: 2 formula, 0 derived now, 2 pending, 1 traced only of 5 modules" in shown.out
    assert "Net was measured at 1 points; 2 or more are needed" in shown.out
    assert [entry.validation.status for entry in kept] == ["pending"]


def test_wrong_answers_leave_the_class_traced_only(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cost(home, *[answer("0", "0")] * 3, more=("--json",)) == 0

    document = json.loads(capsys.readouterr().out)
    reasons = {module["class"].rpartition(".")[2]: module.get("reason", "") for module in document["modules"]}
    assert document["coverage"] == {"formula": 2, "derived now": 0, "pending": 0, "traced only": 3}
    assert reasons["Scale"].startswith(
        "no answer of replay was right: at elements=8, dtype_bytes=4 the formula gives 0"
    )
    assert not (home / "home" / "module_db.json").exists()


def test_without_the_claude_command_classes_stay_traced_only(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(home))

    assert run(["cost", f"{home / 'net.py'}::load_model", "--by", "formula", "--agent"]) == 0
    shown = capsys.readouterr()
    assert "the command claude is not installed" in shown.err
    assert "3 traced only of 5 modules" in shown.out


@pytest.mark.parametrize(("option", "told"), [("--agent", "--agent"), ("--answers=.", "--answers")])
def test_an_agent_without_formulas_is_wrong_input(
    option: str, told: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cost", f"{home / 'net.py'}::load_model", option]) == 2
    assert f"{told} requires --by formula" in capsys.readouterr().err

import json
from pathlib import Path

import pytest

from tests.workflows.formula_recipes import LINEAR, RECIPES
from torchstone.cli.main import run
from torchstone.formula.database.files import own_entries

SETTINGS = ["--at", "n=4 i=8 o=2", "--at", "n=1, i=3, o=5"]
POINTS = [*SETTINGS, "--because", "it is a test"]


def answer(flops: str) -> str:
    return json.dumps(
        {
            "flop_analysis": {"parameters": ["n", "i", "o"], "formula_template": flops, "thinking_process": "counted"},
            "memory_analysis": {
                "parameters": ["n", "i", "o"],
                "reads_template": "4 * (${n} * ${i} + ${i} * ${o})",
                "writes_template": "4 * ${n} * ${o}",
            },
        }
    )


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path / "home"))
    return tmp_path


def ask(home: Path, *answers: str, more: tuple[str, ...] = ()) -> int:
    folder = home / "answers"
    folder.mkdir()
    for number, text in enumerate(answers, start=1):
        (folder / f"{number:02}-answer.txt").write_text(text)
    provider = ["--provider", "replay", "--answers", str(folder)]
    return run(["formula", "agent", LINEAR, "--recipe", f"{RECIPES}::linear", *POINTS, *provider, *more])


def test_a_right_answer_is_kept_as_pending(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(home, answer("2 * ${n} * ${i}"), answer("2 * ${n} * ${i} * ${o}")) == 0

    shown = capsys.readouterr()
    (kept,) = own_entries(home / "home").modules.values()
    assert shown.out.startswith(f"stored {LINEAR} as pending")
    assert "round 1: at n=4, i=8, o=2 the formula gives 64 flops, but 128 were measured (off by -64)" in shown.err
    assert "round 2: exact at every measured point" in shown.err
    assert (kept.validation.status, kept.validation.validator) == ("pending", "agent (replay)")
    assert kept.code_location is not None
    assert kept.code_location.file == "torch/nn/modules/linear.py"
    assert "torch" in kept.versions


def test_a_wrong_answer_leaves_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(home, answer("0"), answer("1"), more=("--rounds", "2", "--json")) == 1

    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["accepted"], document["entry"]) == ("torchstone/formula_agent/1", False, None)
    assert len(document["problems"]) == 2
    assert not (home / "home").exists()


@pytest.mark.usefixtures("home")
def test_a_class_that_can_be_derived_needs_no_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = ["--provider", "replay", "--answers", str(tmp_path)]

    assert run(["formula", "agent", LINEAR, "--recipe", f"{RECIPES}::linear", *SETTINGS, *recorded]) == 2
    assert f"needs no agent, it can be derived: torchstone formula derive {LINEAR}" in capsys.readouterr().err


def test_too_few_answers_are_one_sentence(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(home) == 2
    assert "has only 0 recorded answers" in capsys.readouterr().err


@pytest.mark.usefixtures("home")
def test_without_the_claude_command_there_is_one_clear_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert run(["formula", "agent", LINEAR, "--recipe", f"{RECIPES}::linear", *POINTS]) == 2
    assert "the command claude is not installed" in capsys.readouterr().err


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["no.such.Class", "--recipe", "x.py::f", *POINTS], "cannot be found"),
        ([LINEAR, "--recipe", "x.py::f", "--at", "B=1/2"], "is not a setting of integers"),
        ([LINEAR, "--recipe", "x.py::f", "--at", ""], "is not a setting of integers"),
        ([LINEAR, "--recipe", "x.py::f", *POINTS, "--provider", "replay"], "needs --answers with a folder"),
        ([LINEAR, *POINTS], "Missing option '--recipe'"),
    ],
)
def test_a_wrong_call_is_one_sentence(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "agent", *arguments]) == 2
    assert reason in capsys.readouterr().err

import json
from pathlib import Path

import pytest

from torchstone.cli.main import run
from torchstone.formula.database.files import load_file


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path / "home"))


def test_a_class_of_torch_is_derived_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "derive", "torch.nn.Linear"]) == 0

    out = capsys.readouterr().out
    assert "flops   2 * ${batch_elements} * ${input_features} * ${output_features}" in out
    assert "exact at 32 settings (fitted, held out)" in out
    assert "torch__nn__modules__linear__Linear" in load_file(tmp_path / "home" / "module_db.json").modules


def test_nothing_is_kept_when_only_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "derive", "torch.nn.ReLU", "--no-save", "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/formula_derive/1"
    assert document["entries"][0]["flop_analysis"]["formula_template"] == "${elements}"
    assert not (tmp_path / "home").exists()


def test_entries_can_go_to_a_file(tmp_path: Path) -> None:
    assert run(["formula", "derive", "torch.nn.Tanh", "--out", str(tmp_path / "mine.json"), "-q"]) == 0

    assert len(load_file(tmp_path / "mine.json").modules) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give one CLASS"),
        (("net.Mine",), "neither a class of torch.nn"),
        (("net.Mine", "--recipe", "nothing.py::make"), "--recipe needs --sizes"),
        (("--all-in", "net.py::load"), "--recipe"),
    ],
)
def test_wrong_input_is_one_sentence(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["formula", "derive", *arguments]) == 2

    assert message in capsys.readouterr().err

"""Defaults from pyproject.toml, through the commands that they are for."""

import json
from pathlib import Path

import click
import pytest

from torchstone.cli.main import COMMANDS, cli, run
from torchstone.cli.project_settings import ProjectSettings, find_settings
from torchstone.errors import InputError


def written(folder: Path, text: str) -> ProjectSettings:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    found = find_settings(folder)
    assert found is not None
    return found


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert isinstance(found, click.Command)
    return found


def test_options_have_the_names_of_the_command_line_and_paths_are_those_of_the_file(tmp_path: Path) -> None:
    settings = written(
        tmp_path,
        '[tool.torchstone.check]\nbackend = "inductor"\nmax_depth = 2\npcc = [0.99, "bfloat16=0.9"]\ndir = "out"\n'
        "no-ir = true\n[tool.torchstone.check.compare]\nonly-differences = true\n",
    )

    assert settings.defaults("check", command("check")) == {
        "run": {"backend": "inductor", "max_depth": 2, "pcc": [0.99, "bfloat16=0.9"], "folder": str(tmp_path / "out"),
                "no_ir": True},
        "compare": {"only_differences": True},
    }  # fmt: skip


def test_the_command_line_wins_and_what_it_does_not_say_comes_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, "[tool.torchstone.models]\njson = true\n[tool.torchstone.cost]\nby = 'nothing'\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")

    assert run(["models"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"].startswith("torchstone/")
    assert run(["cost", "nothing.py::net"]) == 2
    assert "'nothing' is not one of" in capsys.readouterr().err  # a value of the file is checked as one given
    assert run(["cost", "nothing.py::net", "--by", "class"]) == 2
    assert "nothing.py does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[tool.torchstone.cost]\nhardwar = "n150"', "no option 'hardwar'; did you mean 'hardware'?"),
        ("[tool.torchstone.chek]\njobs = 1", "no command 'chek'; did you mean 'check'?"),
        ('[tool.torchstone.check]\njobs = ["a"]', "it takes a text or a number"),
        ('[tool.torchstone.check]\nno-ir = "yes"', "it takes true or false"),
        ("[tool.torchstone.inspect]\ntrust = true", "only the command line may set"),
        ("[tool.torchstone]\ncost = 3", "options of a command stand in a table"),
        ("[tool.torchstone.check]\ncompare = 3", "tool.torchstone.check.compare is 3"),
        ("[tool.torchstone.db]\nnothing = 3", "has no command 'nothing'"),
        ("[tool]\ntorchstone = 3", "it must be a table"),
        ("[tool.torchstone", "cannot be read"),
    ],
)
def test_what_is_wrong_in_the_file_is_said_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    name = next((one for one in COMMANDS if f"torchstone.{one}]" in text), "cost")

    assert run([name, "check", "x"] if name == "db" else [name, "x"]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert run([name, "--help"]) == 0  # help is there whatever the file says


def test_a_file_without_the_table_sets_nothing(tmp_path: Path) -> None:
    assert find_settings(tmp_path) is None
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["torchstone"]\n', encoding="utf-8")

    assert find_settings(tmp_path) is None


def test_no_value_of_another_kind_is_taken(tmp_path: Path) -> None:
    settings = written(tmp_path, "[tool.torchstone.check]\nbackend = true\n")

    with pytest.raises(InputError, match="takes a text or a number"):
        settings.defaults("check", command("check"))

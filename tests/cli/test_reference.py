import click
import pytest

from torchstone.cli.main import run
from torchstone.cli.reference import command
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE


def test_there_is_a_subcommand_for_each_step() -> None:
    assert sorted(command.commands) == ["compare", "make", "verify"]


def test_a_model_without_a_subcommand_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reference", "tiny:bert"]) == EXIT_BAD_INPUT

    assert "Missing option '--dir'" in capsys.readouterr().err


def test_options_may_stand_before_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reference", "--mode", "fake", "--dir", "out", "tiny:bert"]) == EXIT_BAD_INPUT

    assert "--mode fake does not give" in capsys.readouterr().err


def test_help_lists_the_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reference", "--help"]) == EXIT_FINE

    shown = capsys.readouterr().out
    assert all(name in shown for name in command.commands)
    assert isinstance(command, click.Group)

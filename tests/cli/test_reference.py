import re
import shlex
from pathlib import Path

import click
import pytest

from tests.cli.programs import ROOT
from torchstone.cli.main import run
from torchstone.cli.reference import command
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE


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


def test_the_tutorial_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "tutorials" / "step-one-of-a-bring-up.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (make, compare) = (shlex.split(text)[1:] for kind, text in blocks if not kind)
    port, spoilt, check = (text for kind, text in blocks if kind == "python")
    (shown,) = (text for kind, text in blocks if kind == "text")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}

    assert run(make) == EXIT_FINE
    assert capsys.readouterr().out == shown
    exec(port, names)  # noqa: S102 - the page's own code
    assert run(compare) == EXIT_FINE
    exec(port.replace("logits.to(torch.bfloat16)", "logits * 2"), names)  # noqa: S102 - as the page says
    assert run(compare) == EXIT_FINDINGS
    assert "scaled or shifted" in capsys.readouterr().out
    exec(spoilt, names)  # noqa: S102 - the page's own code
    assert run(compare) == EXIT_FINDINGS
    assert "wrong, first at modules/cls" in capsys.readouterr().out
    exec(f"{check}test_the_port_gives_what_the_reference_gives()", names)  # noqa: S102 - the page's own code

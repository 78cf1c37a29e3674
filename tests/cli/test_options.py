import sys
from dataclasses import dataclass

import click
import pytest

from torchstone.cli.main import run
from torchstone.cli.options import Session, common_options, options_as
from torchstone.report.text import coloured

CLEAN = {"NO_COLOR": "", "FORCE_COLOR": "", "TERM": "xterm"}


def session_after(*arguments: str) -> Session:
    """What a command sees of the options it was given."""
    seen: list[Session] = []

    @click.command()
    @common_options
    @click.pass_obj
    def command(session: Session) -> None:
        seen.append(session)

    assert run(list(arguments), program=command) == 0
    return seen[0]


@pytest.mark.parametrize(
    ("environment", "terminal", "colour"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colour_goes_by_the_environment_and_the_terminal(
    environment: dict[str, str],
    terminal: bool,  # noqa: FBT001 - pytest's
    colour: bool,  # noqa: FBT001 - pytest's
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (CLEAN | environment).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)

    assert session_after().uses_color is colour


def test_no_color_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert session_after("--no-color").uses_color is False


def test_forced_colour_reaches_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    group = click.Group(commands={"show": click.Command("show", callback=lambda: click.echo(coloured("bold", "bold")))})

    assert run(["show"], program=group) == 0
    assert capsys.readouterr().out == "\x1b[1mbold\x1b[0m\n"


@pytest.mark.parametrize(("word", "name"), [("--quiet", "quiet"), ("-q", "quiet"), ("--debug", "debug")])
def test_a_switch_is_remembered_for_the_whole_run(word: str, name: str) -> None:
    assert getattr(session_after(word), name) is True
    assert getattr(session_after(), name) is False


@dataclass(frozen=True, kw_only=True)
class Shown:
    depth: int
    text: str


def test_options_arrive_as_one_record() -> None:
    seen: list[Shown] = []

    @click.command()
    @click.option("--depth", default=4)
    @click.option("--filter", "text", default="")
    @common_options
    @options_as(Shown)
    def command(options: Shown) -> None:
        seen.append(options)

    assert run(["--filter", "norm"], program=command) == 0
    assert seen == [Shown(depth=4, text="norm")]

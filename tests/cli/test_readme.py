"""Every command of the README, the quickstart and a tutorial runs as it stands there, in the order of the page."""

import re
import shlex
from pathlib import Path

import pytest

from torchstone.cli.main import run
from torchstone.cli.ttmem import command as ttmem
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
_PROGRAMS = ("torchstone", "ttmem")
_BLOCK = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TABLE_CELL = re.compile(r"^\| `([^`]+)`", re.MULTILINE)
PLACEHOLDERS = {"ID", "RUN1", "RUN2"}  # a reader takes them from the output of the command before
_SECTION = re.compile(r"^#{1,3} ", re.MULTILINE)


def commands_in(text: str) -> list[list[str]]:
    """The command lines of code blocks and of the first cells of tables."""
    lines = [line.removeprefix("$ ") for block in _BLOCK.findall(text) for line in block.splitlines()]
    split = [
        shlex.split(line, comments=True) for line in [*lines, *_TABLE_CELL.findall(text)] if starts_a_program(line)
    ]
    return [words for words in split if words[:2] != ["torchstone", "serve"]]  # serves until it is stopped


def starts_a_program(line: str) -> bool:
    return line.startswith(tuple(f"{program} " for program in _PROGRAMS))


def exit_code_of(words: list[str]) -> int:
    program, *arguments = words
    return run(arguments, program=ttmem, name=program) if program == "ttmem" else run(arguments)


@pytest.fixture
def _folder_of_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder: a reader need not have the repository."""
    monkeypatch.setenv("TTMEM_HOME", str(tmp_path / "ttmem"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_folder_of_a_reader")
def test_every_command_runs_and_only_the_planted_fault_is_a_finding() -> None:
    commands = [words for section in _SECTION.split(README) for words in commands_in(section)]
    ended = {shlex.join(words): exit_code_of(words) for words in commands}

    assert len(ended) > 15
    assert "exit code 1" in README
    assert {command: code for command, code in ended.items() if code != expected_code(command)} == {}


@pytest.mark.usefixtures("_folder_of_a_reader")
@pytest.mark.parametrize(
    "page", ["quickstart.md", pytest.param("tutorials/from-model-to-sweep-report.md", marks=pytest.mark.heavy)]
)
def test_every_command_of_a_page_runs_in_an_empty_folder(page: str) -> None:
    commands = commands_in((ROOT / "docs" / page).read_text(encoding="utf-8"))
    whole = [words for words in commands if not any(word in PLACEHOLDERS for word in words)]
    ended = {shlex.join(words): exit_code_of(words) for words in whole}

    assert len(ended) > 5
    # Vectors of other float types and sizes may fail on a backend: that is a finding.
    allowed = {EXIT_FINE, EXIT_FINDINGS} if "sweep" in page else {EXIT_FINE}
    assert {command: code for command, code in ended.items() if code not in allowed} == {}


def expected_code(command: str) -> int:
    finds_it = "--backend faulty" in command or "diff out broken" in command  # the same fault, seen from both sides
    return EXIT_FINDINGS if finds_it else EXIT_FINE


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})  # noqa: S102 - an example of our own

    assert capsys.readouterr().out == "5 537088 {}\n262144\n"

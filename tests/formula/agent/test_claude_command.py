import json
import sys
from pathlib import Path

import pytest

from torchstone.formula.agent.providers import ClaudeCommand, ProviderError

PROGRAM = "claude-for-tests"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(folder: Path, body: str) -> None:
    script = folder / PROGRAM
    script.write_text(f"#!{sys.executable}\nimport json, sys, os, time\n{body}\n")
    script.chmod(0o755)


def test_the_question_goes_in_and_the_result_comes_out(folder: Path) -> None:
    install(folder, "print(json.dumps({'result': json.dumps([sys.argv[1:], sys.stdin.read(), os.getcwd()])}))")
    arguments, question, cwd = json.loads(ClaudeCommand(folder, program=PROGRAM).ask("what?"))

    assert arguments == ["-p", "--output-format", "json", "--allowedTools", "Read,Grep,Glob"]
    assert (question, Path(cwd)) == ("what?", folder.resolve())


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("sys.exit('Invalid API key')", r"failed \(exit code 1\): Invalid API key"),
        ("print(json.dumps({'result': 'no network', 'is_error': True}))", r"failed \(exit code 0\): no network"),
        ("print('no json')", r"failed \(exit code 0\): no json"),
        ("sys.exit(3)", r"failed \(exit code 3\): no message"),
    ],
)
def test_a_failure_is_one_sentence(folder: Path, body: str, reason: str) -> None:
    install(folder, body)

    with pytest.raises(ProviderError, match=reason):
        ClaudeCommand(folder, program=PROGRAM).ask("what?")


def test_a_command_that_is_not_installed_is_named(folder: Path) -> None:
    with pytest.raises(ProviderError, match="the command claude-for-tests is not installed"):
        ClaudeCommand(folder, program=PROGRAM).ask("what?")


def test_a_command_that_never_answers_is_given_up(folder: Path) -> None:
    install(folder, "time.sleep(60)")

    with pytest.raises(ProviderError, match="gave no answer within 0 s"):
        ClaudeCommand(folder, program=PROGRAM, timeout_s=0.3).ask("what?")


def test_a_command_that_cannot_be_started_is_named(folder: Path) -> None:
    (folder / PROGRAM).write_bytes(b"\x00 no program")
    (folder / PROGRAM).chmod(0o755)

    with pytest.raises(ProviderError, match="cannot be started"):
        ClaudeCommand(folder, program=PROGRAM).ask("what?")

import json
from pathlib import Path

import pytest

from tests.cli.programs import torchstone
from torchstone.cli.main import run
from torchstone.cli.terminal import MAX_ERROR_CHARACTERS


def test_the_group_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "--help"]) == 0
    shown = capsys.readouterr().out

    assert all(f"\n  {name} " in shown for name in ("list", "show", "eval", "solve", "generate", "agent", "approve"))


def test_an_unknown_class_is_one_sentence_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("show", "eval"):
        assert run(["formula", command, "TransformerBlok"]) == 2
        assert capsys.readouterr().err == (
            "torchstone: error: no formula is known for TransformerBlok; did you mean TransformerBlock?\n"
        )
    assert run(["formula", "solve", "TransformerBlok", "--memory", "1GiB"]) == 2


def test_the_commands_need_no_torch() -> None:
    done = torchstone("formula", "show", "TransformerBlock", "--expand")
    assert done.returncode == 0, done.stderr
    assert "2 * B * S**2 * hidden_size" in done.stdout


def test_a_database_of_a_thousand_damaged_entries_is_warned_about_in_a_few_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path))
    entries = {f"{number}{'x' * 5_000}": {"module_path": 5} for number in range(1_000)}
    (tmp_path / "module_db.json").write_text(json.dumps({"schema": "torchstone/module_db/1", "modules": entries}))

    assert run(["formula", "show", "MLP"]) == 0
    *warnings, last = capsys.readouterr().err.splitlines()
    assert last == "torchstone: warning: and 995 more of this kind"
    assert len(warnings) == 5
    assert max(map(len, warnings)) < MAX_ERROR_CHARACTERS + 100


def test_a_damaged_database_is_warned_about_in_quiet_sessions_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path))
    (tmp_path / "module_db.json").write_text("damaged")

    assert run(["formula", "show", "MLP", "-q"]) == 0
    assert "torchstone: warning: " in capsys.readouterr().err

from pathlib import Path

import pytest

from tests.cli.databases import database_in
from torchstone.cli.main import run
from torchstone.errors import EXIT_FINE


def test_without_a_word_it_shows_all_ops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHSTONE_DB", database_in(tmp_path))

    assert run(["ops"]) == EXIT_FINE
    short = capsys.readouterr().out
    assert run(["ops", "show"]) == EXIT_FINE

    assert capsys.readouterr().out == short
    assert "aten.addmm.default" in short


def test_help_is_the_help_of_the_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "--help"]) == EXIT_FINE

    shown = capsys.readouterr().out
    assert "\n  show" in shown
    assert "\n  coverage" in shown

import json
from pathlib import Path

import pytest

from tests.formula.entries import entry
from torchstone.cli.main import run
from torchstone.formula.database.files import save_file
from torchstone.record.formula import FormulaDatabase


@pytest.fixture
def databases(tmp_path: Path) -> tuple[str, str]:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    save_file(old, FormulaDatabase(modules={"Net": entry("Net", "a*b + 2*a", "a", "b")}))
    save_file(new, FormulaDatabase(modules={"Net": entry("Net", "a*b + 3*a", "a", "b")}))
    return str(old), str(new)


def test_a_changed_formula_is_shown_term_by_term(
    databases: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["formula", "diff", *databases]) == 1

    assert capsys.readouterr().out.splitlines() == [
        "changed: Net",
        "  flops",
        "  - 2 * a",
        "  + 3 * a",
        "1 formula differs, 0 are new, 0 are gone.",
    ]


def test_equal_databases_are_fine(databases: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "diff", databases[0], databases[0], "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == {"schema": "torchstone/formula_diff/1", "changes": []}


def test_without_a_second_file_the_available_formulas_are_compared(
    databases: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path / "home"))

    assert run(["formula", "diff", databases[0]]) == 0

    assert "removed: Net" in capsys.readouterr().out


def test_a_missing_file_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "diff", "nothing.json"]) == 2

    assert "cannot read nothing.json" in capsys.readouterr().err

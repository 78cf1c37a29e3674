from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.formula.entries import entry
from torchstone.cli.main import run
from torchstone.formula.database.files import load_formulas, own_entries, save_entry
from torchstone.record.formula import Status, Validation


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path))
    pending = Validation(status=Status.PENDING, validator="agent (claude)", date="2026-01-02")
    save_entry(replace(entry("MLP", "7"), validation=pending), tmp_path)
    return tmp_path


def test_an_approved_entry_counts(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert load_formulas(home).find("MLP").flop_analysis.formula_template != "7"

    assert run(["formula", "approve", "MLP", "--by", "Ada"]) == 0

    assert capsys.readouterr().out == "approved MLP\n"
    found = load_formulas(home).find("MLP")
    assert (found.flop_analysis.formula_template, found.validation.validator) == ("7", "Ada")


def test_a_rejected_entry_is_gone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "approve", "MLP", "--reject"]) == 0
    assert capsys.readouterr().out == "removed MLP\n"
    assert own_entries(home).modules == {}


def test_only_pending_entries_can_be_approved(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_entry(entry("my.Net", "1"), home)

    assert run(["formula", "approve", "my.Net"]) == 2
    assert "my.Net is unchecked, not pending" in capsys.readouterr().err
    assert run(["formula", "approve", "TransformerBlock"]) == 2
    assert "no formula is known for TransformerBlock" in capsys.readouterr().err
    assert run(["formula", "approve", "MLP", "-q"]) == 0

import json
from pathlib import Path

import pytest

from tests.formula.entries import entry
from torchstone.cli.main import run
from torchstone.formula.database.files import save_entry


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path))
    return tmp_path


def test_shipped_and_own_formulas_are_listed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_entry(entry("my.Net", "2 * ${n}", "n"), home)

    assert run(["formula", "list"]) == 0
    shown = capsys.readouterr()
    rows = {line.split()[0]: line.split() for line in shown.out.splitlines()}
    assert rows["my.Net"] == ["my.Net", "unchecked", "-", "own", "n"]
    assert rows["TransformerBlock"][3] == "shipped"
    assert "formulas." in shown.err


@pytest.mark.usefixtures("home")
def test_the_list_is_filtered(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "list", "--filter", "multihead", "-q", "--status", "unchecked"]) == 0
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()] == ["class", "MultiHeadAttention"]
    assert shown.err == ""


def test_the_document_names_its_schema(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_entry(entry("my.Net", "2 * ${n}", "n"), home)

    assert run(["formula", "list", "--json", "--filter", "my.net", "--check"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/formulas/1"
    assert document["mistakes"] == []
    assert document["formulas"] == [
        {
            "key": "my__Net", "module_path": "my.Net", "variant": "", "aliases": [], "parameters": ["n"],
            "status": "unchecked", "points_checked": None, "own": True,
        }
    ]  # fmt: skip


def test_mistakes_are_found_when_asked_for(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_entry(entry("my.Net", "2 * ${m}", "n"), home)

    assert run(["formula", "list"]) == 0
    assert run(["formula", "list", "--check"]) == 1
    assert "my.Net, formula_template, character 5: the parameter m is not declared" in capsys.readouterr().err

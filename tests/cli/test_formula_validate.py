import json
from pathlib import Path

import msgspec
import pytest

from torchstone.cli.main import run
from torchstone.formula.database.files import load_shipped, save_entry


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path / "home"))


def test_a_shipped_formula_is_compared_and_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "validate", "torch.nn.Linear", "--points", "2"]) == 0

    assert "8 calls of 1 entry agrees, 0 entries differ." in capsys.readouterr().out


def test_a_wrong_formula_is_found_with_its_term(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = load_shipped().modules["torch__nn__modules__activation__ReLU"]
    wrong = msgspec.structs.replace(
        entry,
        flop_analysis=msgspec.structs.replace(
            entry.flop_analysis, formula_template="2 * elements", breakdown={"aten.relu.default": "2 * elements"}
        ),
    )
    save_entry(wrong, tmp_path / "home")

    assert run(["formula", "validate", "torch.nn.ReLU", "--json"]) == 1

    (differ,) = json.loads(capsys.readouterr().out)["differ"]
    assert differ["quantity"] == "flops"
    assert differ["term"].startswith("aten.relu.default: 2 * elements is")


def test_what_nothing_builds_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "validate", "TransformerBlock"]) == 2

    assert "nothing builds TransformerBlock" in capsys.readouterr().err

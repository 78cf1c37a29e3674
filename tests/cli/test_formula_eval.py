import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.formula.entries import entry, memory
from torchstone.cli.main import run
from torchstone.formula.database.files import save_entry

BLOCK = ["B=1", "S=2*1024", "hidden_size=4096", "num_heads=32", "intermediate_size=11008"]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path))
    return tmp_path


def test_all_that_is_known_is_computed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "eval", "TransformerBlock", *BLOCK]) == 0
    shown = capsys.readouterr()

    assert shown.out.splitlines()[0].split() == ["flops", "678,711,263,232", "(679", "G)"]
    assert [line.split()[0] for line in shown.out.splitlines()] == [
        "flops", "reads", "writes", "intermediates", "weights",
    ]  # fmt: skip
    assert "the status of this formula is unchecked" in shown.err


def test_one_quantity_is_computed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "eval", "TransformerBlock", *BLOCK, "--of", "weights", "-q"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "weights  314,605,568  (300 MiB)\n"
    assert shown.err == ""


def test_the_tree_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "eval", "TransformerBlock", *BLOCK, "--explain", "--of", "flops"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[:2] == ["flops", "TransformerBlock(1, 2048, 4096, 32, 11008) = 678,711,263,232"]
    assert lines[2] == "├── {MultiHeadAttention}(1, 2048, 4096, 32) = 309,237,645,312"


def test_the_document_has_exact_numbers(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_entry(replace(entry("my.Net", "${n} / 2", "n"), memory_analysis=memory("n", reads="${n}")), home)

    assert run(["formula", "eval", "my.Net", "n=3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": "torchstone/formula_value/1", "module_path": "my.Net", "parameters": {"n": 3},
        "flops": "3/2", "reads": 3, "writes": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["MLP", "B=1"], "missing required parameters S, hidden_size, intermediate_size"),
        (["MLP", "X=1"], "MLP has no parameter X; it has B, S"),
        (["MLP", "B"], "is not of the form PARAMETER=VALUE"),
        (["TransformerBlock", *BLOCK[:3], "num_heads=3", "intermediate_size=5"], "holds only where"),
    ],
)
def test_a_wrong_call_is_one_sentence(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "eval", *arguments]) == 2
    assert reason in capsys.readouterr().err


def test_a_quantity_that_is_not_known_is_an_error(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_entry(entry("my.Net", "1"), home)

    assert run(["formula", "eval", "my.Net", "--of", "reads"]) == 2
    assert "my.Net has no formula for reads" in capsys.readouterr().err

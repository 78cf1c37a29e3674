import json
from pathlib import Path

import pytest

from torchstone.cli.main import run


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("model", ["tiny:llama", "tiny:bert", "tiny:t5", "tiny:mixtral", "tiny:vit"])
def test_every_module_of_a_known_model_is_exactly_as_traced(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", model, "--by", "formula", "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/cost_by_formula/1"
    assert document["disagreeing"] == []
    assert document["coverage"]["traced only"] == 0
    assert document["modules"][0]["flops"] == document["modules"][0]["traced_flops"] > 0


def test_a_real_size_is_evaluated_from_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "meta-llama/Llama-2-7b-hf", "--by", "formula", "--seq-len", "64", "--batch-size", "3"]) == 0

    out = capsys.readouterr().out
    assert "32 x LlamaDecoderLayer" in out
    assert "agreement: 422 of 422 modules with a formula are exactly as traced" in out


@pytest.mark.parametrize("model", ["tiny:llama", "tiny:gpt2", "tiny:t5"])
def test_the_decode_phase_is_exactly_as_traced(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--phase", "decode", "--cache-len", "37", "--batch-size", "3", "--dtype", "bfloat16"]

    assert run(["cost", model, "--by", "formula", *asked, "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["disagreeing"] == []
    assert document["coverage"]["traced only"] == document["coverage"]["derived now"] == 0


@pytest.mark.parametrize("asked", [("--seq-len", "5000"), ("--phase", "decode", "--cache-len", "5000")])
@pytest.mark.parametrize("model", ["mistralai/Mistral-7B-v0.1", "mistralai/Mistral-Nemo-Instruct-2407"])
def test_a_window_that_is_full_or_not_there_is_known(
    model: str, asked: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cost", model, "--by", "formula", "--layers", "1", *asked]) == 0

    assert "0 traced only" in capsys.readouterr().out


def test_a_model_of_the_users_own_is_covered_where_classes_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Sequential): pass\n"
        "def load_model(): return Net(nn.Linear(8, 4), nn.ReLU()), torch.ones(2, 8)\n"
    )

    assert run(["cost", f"{path}::load_model", "--by", "formula"]) == 0

    assert "coverage: 2 formula, 0 derived now, 1 traced only of 3 modules" in capsys.readouterr().out


def test_other_conventions_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:llama", "--by", "formula", "--count", "macs"]) == 2

    assert "drop --count macs" in capsys.readouterr().err

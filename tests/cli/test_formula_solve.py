import json
from pathlib import Path

import pytest

from tests.formula.entries import entry
from torchstone.cli.main import run
from torchstone.formula.database.files import save_entry

BLOCK = ["S=2048", "hidden_size=4096", "num_heads=32", "intermediate_size=11008"]


def test_the_largest_batch_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "solve", "TransformerBlock", *BLOCK, "--memory", "80GiB"]) == 0
    assert capsys.readouterr().out == (
        "B = 242 fits in 80.0 GiB: weights 300 MiB, intermediates 79.4 GiB\nB = 243 would need 80.0 GiB\n"
    )


@pytest.mark.parametrize("model", ["GPT2LMHeadModel", "GPT2LMHeadModel[decode]"])
def test_a_whole_model_ships_with_what_it_holds(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    length = "cache_len=512" if model.endswith("[decode]") else "S=512"
    sizes = [length, "hidden_size=768", "num_heads=12", "n_layer=12", "vocab_size=50257", "n_positions=1024"]

    assert run(["formula", "solve", model, *sizes, "--memory", "8GiB"]) == 0
    assert "weights 237 MiB" in capsys.readouterr().out


def test_another_parameter_and_limit_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["B=1", *BLOCK[1:], "--for", "S", "--flops", "1e15", "--json"]

    assert run(["formula", "solve", "TransformerBlock", *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/formula_solution/1"
    assert (document["parameter"], document["limit"], document["proven"]) == ("S", 10**15, True)
    assert document["costs"]["flops"] <= 10**15


def test_nothing_fits_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "solve", "TransformerBlock", *BLOCK, "--traffic", "1MiB"]) == 1
    assert capsys.readouterr().out == "no B fits in 1.00 MiB\n"
    assert run(["formula", "solve", "TransformerBlock", *BLOCK, "--memory", "1MiB", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["value"] is None


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([*BLOCK], "give exactly one of --memory, --traffic and --flops"),
        ([*BLOCK, "--memory", "1GiB", "--flops", "1"], "give exactly one of"),
        ([*BLOCK, "--memory", "lots"], "--memory 'lots' cannot be read; write it as 80GiB or 500MB"),
        (["--memory", "1GiB"], "give values for"),
        ([*BLOCK, "--for", "T", "--memory", "1GiB"], "TransformerBlock has no parameter T"),
    ],
)
def test_a_wrong_call_is_one_sentence(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "solve", "TransformerBlock", *arguments]) == 2
    assert reason in capsys.readouterr().err


def test_an_answer_that_is_not_proven_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path))
    save_entry(entry("my.Net", "${B} + ${B} % 7", "B"), tmp_path)

    assert run(["formula", "solve", "my.Net", "--flops", "100"]) == 0
    assert "a larger one may fit too" in capsys.readouterr().err


def test_memory_that_is_not_known_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path))
    save_entry(entry("my.Net", "${B}", "B"), tmp_path)

    assert run(["formula", "solve", "my.Net", "--memory", "1GiB"]) == 2
    assert (
        "my.Net has no formula for weights, intermediates; use --flops, or write a formula for it"
        in capsys.readouterr().err
    )


def test_a_chart_of_memory_and_time_is_written_for_a_device(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chart = tmp_path / "solve.svg"

    assert run(["formula", "solve", "TransformerBlock", *BLOCK, "--hardware", "h100", "--chart", str(chart)]) == 0
    assert chart.read_text(encoding="utf-8").startswith("<svg ")
    assert run(["formula", "solve", "TransformerBlock", *BLOCK, "--memory", "1GiB", "--chart", str(chart)]) == 2
    assert "--hardware" in capsys.readouterr().err

import json

import pytest

from torchstone.cli.cost_pricing import logits_argument
from torchstone.cli.main import run


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, float]]:
    assert run(["cost", "tiny:llama", *arguments, "--json"]) == 0
    found: dict[str, dict[str, float]] = json.loads(capsys.readouterr().out)
    return found


def test_a_device_gives_a_prediction_and_a_split(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--hardware", "n150", "--tp", "4")
    assert 0 < found["prediction"]["ideal_s"] <= found["prediction"]["total_s"] < 1
    assert found["tensor_parallel"]["devices"] == 4
    assert run(["cost", "tiny:llama", "--hardware", "n150", "--tp", "4"]) == 0
    shown = capsys.readouterr().out
    assert "a roofline, not a measurement" in shown
    assert "sent by each" in shown


def test_an_optimiser_adds_its_states(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--backward", "--optimizer", "adamw")
    assert found["optimiser"]["state_bytes"] == 2 * found["totals"]["parameter_bytes"]


def test_only_the_last_logits_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    every = document(capsys, "--logits", "all", "--seq-len", "16")
    last = document(capsys, "--logits", "last", "--seq-len", "16")
    saved = every["totals"]["matmul_flops"] - last["totals"]["matmul_flops"]
    assert saved == 2 * 15 * 64 * 512
    assert run(["cost", "tiny:bert", "--logits", "last"]) == 2
    assert "takes no logits_to_keep" in capsys.readouterr().err
    assert logits_argument(None) == {}


def test_an_optimiser_without_a_backward_pass_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:llama", "--optimizer", "adamw", "-q"]) == 2
    assert "add --backward" in capsys.readouterr().err

import json
from pathlib import Path

import pytest

from torchstone.cli.main import run


def test_a_difference_is_explained_op_by_op(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:mixtral", "--compare-with", "flop_counter", "--by", "depth"]) == 0
    shown = capsys.readouterr().out
    assert "flop_counter: _grouped_mm: 0 against 25,165,824: not counted, and it does not say so" in shown


def test_the_comparison_is_a_part_of_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:bert", "--compare-with", "flop_counter", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchstone/cost/1"
    assert document["comparison"]["counters"][0]["count"]["name"] == "flop_counter"


def test_counters_need_the_model_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:bert", "--dir", str(tmp_path / "out"), "-q"]) == 0
    assert run(["cost", str(tmp_path / "out"), "--compare-with", "flop_counter"]) == 2
    assert run(["cost", "tiny:bert", "--compare-with", "abacus"]) == 2
    assert "knows no 'abacus'" in capsys.readouterr().err


def test_a_backward_pass_is_not_compared_with_forward_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "tiny:bert", "--backward", "--compare-with", "flop_counter", "-q"]) == 2
    assert "count a forward pass" in capsys.readouterr().err

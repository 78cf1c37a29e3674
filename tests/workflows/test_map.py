"""Models mapped to real ttnn on its mock device; needs its environment."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.backends.ttnn.environments import needs_ttnn, ttnn_environment
from torchstone.backends.ttnn.boards import find_board
from torchstone.backends.ttnn.environment import interpreter_of, kernel_cache
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE

pytestmark = [pytest.mark.ttnn, needs_ttnn]

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Linear(8, 5)

    def forward(self, x):
        pooled = torch.relu(self.first(x)).mean((2, 3))
        return torch.histc(self.second(pooled)) if {odd} else self.second(pooled)

def load():
    return Net().eval(), (torch.randn(1, 3, 17, 18),)
"""


def model(tmp_path: Path, *, odd: bool) -> str:
    (tmp_path / "net.py").write_text(MODEL.replace("{odd}", str(odd)), encoding="utf-8")
    return f"{tmp_path / 'net.py'}::load"


def ran_alone(file: Path, folder: Path) -> str:
    """What a generated module prints in the environment that has ttnn."""
    python = interpreter_of(ttnn_environment())
    variables = os.environ | find_board("n150").variables(kernel_cache(python))
    done = subprocess.run([python, str(file)], cwd=folder, env=variables, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 else done.stderr


def test_a_plain_model_is_accepted_and_never_called_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--python", ttnn_environment(), "--dir", str(tmp_path / "out")]

    assert run(["map", model(tmp_path, odd=False), *options]) == EXIT_FINE
    said = capsys.readouterr().out
    assert "100.00 %" in said
    assert "not that its result is right" in said
    assert "pass" not in said
    document = json.loads((tmp_path / "out" / "mapping.json").read_text(encoding="utf-8"))
    assert document["plan"]["outcome"] == "accepted"
    assert len(document["plan"]["dram_bank_bytes"]) > 5
    linear = next(name for name in document["skeletons"] if name.endswith("second"))
    assert ran_alone(tmp_path / "out" / document["skeletons"][linear], tmp_path) == "accepted"
    assert "On Tenstorrent" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_an_op_without_a_counterpart_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--python", ttnn_environment(), "--json"]

    assert run(["map", model(tmp_path, odd=True), *options]) == EXIT_FINDINGS
    document = json.loads(capsys.readouterr().out)
    lost = [one["op"] for one in document["ops"] if one["outcome"] == "unmapped"]
    assert lost == ["aten.histc.default"]
    assert document["mock"] is True


def test_a_missing_rule_file_is_an_error_of_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--python", ttnn_environment(), "--rules", str(tmp_path / "none.py")]

    assert run(["map", model(tmp_path, odd=False), *options]) == EXIT_BAD_INPUT
    assert "none.py" in capsys.readouterr().err

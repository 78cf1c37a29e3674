from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from tests.check import planted_net
from tests.check.held import faulty
from torchstone.check.child.model import held_model
from torchstone.check.holding import capture_held, hold
from torchstone.errors import ModelInputsError
from torchstone.models.inputs import InputOptions
from torchstone.record.codec import load
from torchstone.record.trace import Trace

MODEL = f"{planted_net.__file__}::load_model"
OPTIONS = asdict(InputOptions())


def test_a_model_is_held_with_its_inputs() -> None:
    hold({"model": MODEL, "inputs": None, "options": OPTIONS, "backend": faulty().backend_payload})

    held = held_model()
    assert type(held.model).__name__ == "Planted"
    assert held.args[0].shape == (3, 5, planted_net.WIDTH)
    assert held.about["model"] == MODEL


def test_inputs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "inputs.py"
    file.write_text("def get_inputs():\n    return {'nothing': 1}\n")

    with pytest.raises(ModelInputsError, match="do not fit"):
        hold({"model": MODEL, "inputs": f"{file}::get_inputs", "options": OPTIONS})


def test_the_held_model_is_captured_as_it_really_runs(tmp_path: Path) -> None:
    hold({"model": MODEL, "inputs": None, "options": OPTIONS})

    answer = capture_held(
        {"capture": "torchstone.capture.capturing:capture", "trace": str(tmp_path / "trace.json"), "command": "x"}
    )

    trace = load(tmp_path / "trace.json", Trace)
    assert answer == {"failure": None}
    assert (trace.provenance.mode, trace.provenance.model, trace.provenance.command) == ("cpu", MODEL, "x")


def test_a_model_that_fails_by_itself_is_told(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("import torch\n\ndef load_model():\n    return torch.nn.Linear(3, 3), torch.ones(2)\n")
    hold({"model": f"{file}::load_model", "inputs": None, "options": OPTIONS})

    answer = capture_held(
        {"capture": "torchstone.capture.capturing:capture", "trace": str(tmp_path / "trace.json"), "command": ""}
    )

    assert "RuntimeError" in answer["failure"]["error"]
    assert torch.is_grad_enabled()

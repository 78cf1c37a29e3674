from dataclasses import asdict
from pathlib import Path

import pytest

from tests.check import planted_net
from tests.check.held import faulty
from torchstone.check.child.model import loaded_model
from torchstone.check.model_setup import set_up
from torchstone.errors import ModelInputsError
from torchstone.models.inputs import InputOptions

MODEL = f"{planted_net.__file__}::load_model"
OPTIONS = asdict(InputOptions())


def test_a_model_is_held_with_its_inputs() -> None:
    set_up({"model": MODEL, "inputs": None, "options": OPTIONS, "backend": faulty().backend_payload})

    held = loaded_model()
    assert type(held.model).__name__ == "Planted"
    assert held.args[0].shape == (3, 5, planted_net.WIDTH)
    assert held.about["model"] == MODEL


def test_inputs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "inputs.py"
    file.write_text("def get_inputs():\n    return {'nothing': 1}\n")

    with pytest.raises(ModelInputsError, match="do not match"):
        set_up({"model": MODEL, "inputs": f"{file}::get_inputs", "options": OPTIONS})

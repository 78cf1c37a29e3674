from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.reference.nets import Counting, TwoLayers
from torchstone.errors import ModelError
from torchstone.models.inputs import Inputs
from torchstone.record.reference import Box
from torchstone.reference.golden_files import TENSORS_FILE, TORCH_FILE, WEIGHTS_FILE, Golden, save_golden
from torchstone.reference.golden_noise import measure_noise, save_noise
from torchstone.reference.make import make_golden
from torchstone.reference.verify import golden_box

INPUTS = Inputs(args=(torch.linspace(0, 1, 8).reshape(2, 4),), origin="test")


class OnlyNan(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * float("nan")


class Silent(nn.Module):
    def forward(self, x: Tensor) -> None:
        x.relu()


def made_in(folder: Path, model: nn.Module, *, with_weights: bool = False) -> Golden:
    made = save_golden(folder, make_golden(model, INPUTS), weights_of=model if with_weights else None)
    save_noise(folder, measure_noise(made, model, INPUTS))
    return made


def box_of(folder: Path, model: nn.Module, made: Golden) -> Box:
    return golden_box(folder, model, INPUTS, made, lambda: model)


def failed(box: Box) -> list[str]:
    return [check.title for check in box.checks if not check.passed]


def test_good_golden_data_ticks_the_box(tmp_path: Path) -> None:
    model = TwoLayers()
    made = made_in(tmp_path, model, with_weights=True)

    box = box_of(tmp_path, model, made)

    assert box.ticked
    assert WEIGHTS_FILE in box.files


def test_a_file_that_was_damaged_opens_the_box(tmp_path: Path) -> None:
    model = TwoLayers()
    made = made_in(tmp_path, model)
    content = bytearray((tmp_path / TENSORS_FILE).read_bytes())
    content[-1] ^= 1
    (tmp_path / TENSORS_FILE).write_bytes(content)
    (tmp_path / TORCH_FILE).write_bytes(b"")

    box = box_of(tmp_path, model, made)

    assert not box.ticked
    reloaded, torch_file, run_again = failed(box)
    assert reloaded.startswith(TENSORS_FILE)
    assert torch_file.startswith(TORCH_FILE)
    assert run_again.startswith("the model run on the inputs from the file")


def test_a_source_that_makes_other_weights_each_time_opens_the_box_unless_they_are_kept(tmp_path: Path) -> None:
    model = TwoLayers()
    title = "the model built again from its source and seed has the same weights"

    def other() -> nn.Module:
        return nn.Linear(2, 2)

    def gone() -> nn.Module:
        msg = "the file net.py does not exist"
        raise ModelError(msg)

    made = made_in(tmp_path, model)
    assert failed(golden_box(tmp_path, model, INPUTS, made, other)) == [title]
    assert failed(golden_box(tmp_path, model, INPUTS, made, gone)) == [title]
    assert golden_box(tmp_path, model, INPUTS, made, TwoLayers).ticked
    assert golden_box(tmp_path, model, INPUTS, made_in(tmp_path, model, with_weights=True), other).ticked


def test_weights_that_are_not_those_of_the_model_open_the_box(tmp_path: Path) -> None:
    model = TwoLayers()
    made = made_in(tmp_path, model, with_weights=True)
    with torch.no_grad():
        model.second.bias.add_(1e-7)

    assert failed(box_of(tmp_path, model, made)) == [f"{WEIGHTS_FILE} read back gives the same bits"]


def test_a_model_that_gives_something_else_each_time_opens_the_box(tmp_path: Path) -> None:
    model = Counting()

    box = box_of(tmp_path, model, made_in(tmp_path, model))

    assert "two runs return the same bits" in failed(box)


@pytest.mark.parametrize(
    ("model", "found"),
    [(OnlyNan(), "1 output, 0 of them without NaN or Inf; only NaN or Inf: outputs"), (Silent(), "0 outputs")],
)
def test_golden_outputs_that_say_nothing_open_the_box(model: nn.Module, found: str, tmp_path: Path) -> None:
    check, *_ = [one for one in box_of(tmp_path, model, made_in(tmp_path, model)).checks if not one.passed]

    assert check.title == "the model returns tensors, and none of them is all NaN or Inf"
    assert check.detail.startswith(found)

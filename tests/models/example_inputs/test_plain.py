import pytest
import torch
from torch import nn

from torchstone.errors import ModelInputsError
from torchstone.models.example_inputs.plain import inputs_for_module
from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import load
from torchstone.models.pretrained import build, find_blueprint

OPTIONS = InputOptions(batch_size=2, seq_len=6, image_size=20)


class Two(nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left + right


class Nothing(nn.Module):
    def forward(self, x: torch.Tensor | None = None) -> torch.Tensor | None:
        return x


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(4, 2), (2, 6, 4)),
        (nn.Conv1d(4, 2, 3), (2, 4, 6)),
        (nn.Conv2d(4, 2, 3), (2, 4, 20, 20)),
        (nn.Conv3d(4, 2, 3), (2, 4, 8, 20, 20)),
        (nn.LSTM(4, 2, batch_first=True), (2, 6, 4)),
        (nn.LSTM(4, 2), (6, 2, 4)),
        (nn.GRU(4, 2, bidirectional=True), (6, 2, 4)),
        (nn.RNN(4, 2), (6, 2, 4)),
        (nn.TransformerEncoderLayer(4, 2, 8), (6, 2, 4)),
        (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (2, 6, 4)),
        (nn.LayerNorm([3, 4]), (2, 3, 4)),
        (nn.Embedding(9, 4), (2, 6)),
    ],
)
def test_one_argument_is_guessed_from_the_first_layer(layer: nn.Module, shape: tuple[int, ...]) -> None:
    inputs = inputs_for_module(nn.Sequential(layer), OPTIONS)
    assert tuple(inputs.args[0].shape) == shape
    assert "guessed from the first layer, 0" in inputs.notes[0]
    nn.Sequential(layer)(*inputs.args)


@pytest.mark.parametrize(
    ("layer", "unused"),
    [
        (nn.Linear(3, 4), {"image_size", "phase"}),
        (nn.Conv2d(3, 4, 1), {"seq_len", "phase"}),
        (nn.LayerNorm(3), {"seq_len", "image_size", "phase"}),
    ],
    ids=["Linear", "Conv2d", "LayerNorm"],
)
def test_options_that_the_guess_does_not_follow_are_said(layer: nn.Module, unused: set[str]) -> None:
    options = InputOptions(batch_size=2, seq_len=5, image_size=9, phase="decode")
    notes = inputs_for_module(layer, options).notes
    assert {note.partition(":")[0] for note in notes if "not applied" in note} == unused


def test_a_linear_layer_alone_gets_a_row_for_each_sample() -> None:
    assert inputs_for_module(nn.Linear(4, 2), InputOptions()).args[0].shape == (1, 4)


def test_the_guess_has_the_layers_dtype() -> None:
    assert inputs_for_module(nn.Linear(4, 2).double(), OPTIONS).args[0].dtype is torch.float64


@pytest.mark.parametrize("model", [Two(), nn.Sequential(nn.PReLU(), nn.Linear(3, 3)), nn.ReLU()])
def test_what_cannot_be_guessed_is_asked_for(model: nn.Module) -> None:
    with pytest.raises(
        ModelInputsError, match=r"its forward needs \w+.*; pass them with --inputs file\.py::get_inputs"
    ):
        inputs_for_module(model, OPTIONS)


def test_a_forward_that_needs_nothing_gets_nothing() -> None:
    inputs = inputs_for_module(Nothing(), OPTIONS)
    assert (inputs.args, inputs.kwargs) == ((), {})


def test_a_transformers_model_from_user_code_gets_inputs_of_its_kind() -> None:
    model = build(find_blueprint("tiny:gpt2", InputOptions()), device="cpu", seed=0)
    loaded = load(model, options=OPTIONS)
    assert loaded.inputs.kwargs["input_ids"].shape == (2, 6)

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.reference.nets import ManyOutputs, TwoLayers
from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.reference import Role
from torchstone.reference.golden_files import (
    DATA_FILE,
    TENSORS_FILE,
    TORCH_FILE,
    WEIGHTS_FILE,
    load_golden,
    save_golden,
)
from torchstone.reference.make import make_golden


def test_golden_data_comes_back_as_it_was(tmp_path: Path) -> None:
    made = save_golden(tmp_path, make_golden(ManyOutputs(), torch.randn(3)))

    found = load_golden(tmp_path)

    assert found.data == made.data
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in made.tensors.items())
    assert list(found.named(Role.OUTPUT)) == ["outputs/logits", "outputs/states/0", "outputs/states/1"]


def test_the_pt_file_is_read_without_running_code_and_has_the_structure(tmp_path: Path) -> None:
    x = torch.randn(3)
    save_golden(tmp_path, make_golden(ManyOutputs(), x))

    content = torch.load(tmp_path / TORCH_FILE, weights_only=True)

    assert torch.equal(content["inputs"]["x"], x)
    assert torch.equal(content["outputs"]["states"][1], x + 1)
    assert content["outputs"]["name"] == "answer"
    assert content["seed"] == 0


def test_weights_are_kept_when_a_model_is_given(tmp_path: Path) -> None:
    model = TwoLayers()

    made = save_golden(tmp_path, make_golden(model, torch.ones(1, 4)), weights_of=model)

    assert made.data.weights.file == WEIGHTS_FILE
    assert (tmp_path / WEIGHTS_FILE).is_file()


def test_weights_of_an_earlier_reference_do_not_stay(tmp_path: Path) -> None:
    model = TwoLayers()
    golden = make_golden(model, torch.ones(1, 4))
    save_golden(tmp_path, golden, weights_of=model)

    save_golden(tmp_path, golden)

    assert not (tmp_path / WEIGHTS_FILE).exists()


def test_weights_that_no_file_can_hold_are_named(tmp_path: Path) -> None:
    model = nn.Linear(2, 2, dtype=torch.complex128)
    golden = make_golden(model, torch.ones(1, 2, dtype=torch.complex128))

    with pytest.raises(InputError, match="bias: safetensors has no complex128; drop --with-weights"):
        save_golden(tmp_path, golden, weights_of=model)


def test_the_same_run_gives_the_same_tensor_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_golden(tmp_path / name, make_golden(TwoLayers(), torch.ones(1, 4)))

    assert (tmp_path / "a" / TENSORS_FILE).read_bytes() == (tmp_path / "b" / TENSORS_FILE).read_bytes()


def test_a_damaged_or_foreign_tensor_file_is_named(tmp_path: Path) -> None:
    save_golden(tmp_path, make_golden(TwoLayers(), torch.ones(1, 4)))
    save_golden(tmp_path / "other", make_golden(TwoLayers(), torch.ones(2, 4)))
    (tmp_path / "other" / TENSORS_FILE).replace(tmp_path / TENSORS_FILE)

    with pytest.raises(UnreadableFileError, match=f"does not match {DATA_FILE}: inputs/x"):
        load_golden(tmp_path)
    (tmp_path / TENSORS_FILE).write_bytes(b"short")
    with pytest.raises(UnreadableFileError, match=TENSORS_FILE):
        load_golden(tmp_path)
    with pytest.raises(UnreadableFileError, match=DATA_FILE):
        load_golden(tmp_path / "nowhere")


def test_a_value_that_was_changed_afterwards_is_noticed(tmp_path: Path) -> None:
    made = save_golden(tmp_path, make_golden(TwoLayers(), torch.ones(1, 4)))
    save_file({name: 1.0001 * tensor for name, tensor in made.tensors.items()}, tmp_path / TENSORS_FILE)

    with pytest.raises(UnreadableFileError, match="was changed after the reference was made"):
        load_golden(tmp_path)

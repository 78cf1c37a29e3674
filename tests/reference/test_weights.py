from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.reference.nets import TwoLayers
from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.reference import Weights
from torchstone.reference.golden_files import load_state, model_state, raw_bytes, require_values, weights_of


def test_the_fingerprint_changes_with_one_bit_and_not_with_the_object() -> None:
    same, other = TwoLayers(), TwoLayers()
    with torch.no_grad():
        other.first.bias[0] += 1e-6

    assert weights_of(TwoLayers()).sha256 == weights_of(same).sha256
    assert weights_of(other).sha256 != weights_of(same).sha256


def test_the_size_is_that_of_all_elements() -> None:
    found = weights_of(TwoLayers())

    assert found.size_bytes == 4 * (4 * 8 + 8 + 8 * 3 + 3)
    assert found.tensors == 4


def test_a_tied_weight_counts_once() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight

    assert list(model_state(model)) == ["0.bias", "0.weight", "1.bias"]


def test_a_model_without_values_is_refused() -> None:
    with pytest.raises(InputError, match="bias has no values"):
        require_values(nn.Linear(2, 2, device="meta"))


def test_a_model_with_more_than_plain_numbers_is_refused() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("edges", torch.eye(2).to_sparse())

    with pytest.raises(InputError, match=r"edges has no plain values \(its layout is sparse_coo\)"):
        require_values(model)


def saved_weights(model: nn.Module, path: Path) -> Weights:
    save_file({name: tensor.clone() for name, tensor in model_state(model).items()}, path)
    return weights_of(model)


def test_saved_weights_come_back(tmp_path: Path) -> None:
    saved, fresh = nn.Linear(2, 2), nn.Linear(2, 2)
    made_with = saved_weights(saved, tmp_path / "w.safetensors")

    load_state(fresh, tmp_path / "w.safetensors", made_with)

    assert weights_of(fresh) == weights_of(saved)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Linear(2, 2, bias=False), r"bias is float32\[2\] in the file and missing in the model"),
        (nn.Linear(2, 3), r"bias is float32\[2\] in the file and float32\[3\] in the model"),
        (nn.Linear(2, 2, dtype=torch.float64), r"bias is float32\[2\] in the file and float64\[2\] in the model"),
    ],
)
def test_weights_that_do_not_fit_are_refused(model: nn.Module, words: str, tmp_path: Path) -> None:
    made_with = saved_weights(nn.Linear(2, 2), tmp_path / "w.safetensors")

    with pytest.raises(InputError, match=words):
        load_state(model, tmp_path / "w.safetensors", made_with)


def test_weights_that_are_gone_damaged_or_changed_are_refused(tmp_path: Path) -> None:
    model, path = nn.Linear(2, 2), tmp_path / "w.safetensors"
    made_with = weights_of(model)

    with pytest.raises(UnreadableFileError, match="--with-weights"):
        load_state(model, path, made_with)
    path.write_bytes(b"half a file")
    with pytest.raises(UnreadableFileError, match="cannot be read"):
        load_state(model, path, made_with)
    saved_weights(nn.Linear(2, 2), path)
    with pytest.raises(UnreadableFileError, match="its weights differ"):
        load_state(model, path, made_with)


@pytest.mark.parametrize(
    "tensor", [torch.empty(0), torch.ones((), dtype=torch.bool), torch.ones(2, dtype=torch.bfloat16)]
)
def test_bytes_are_taken_from_any_tensor(tensor: torch.Tensor) -> None:
    assert len(raw_bytes(tensor)) == tensor.numel() * tensor.element_size()

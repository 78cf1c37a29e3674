from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.reference.nets import TwoLayers
from torchstone.errors import InputError, UnreadableFileError
from torchstone.reference.weights import held_state, put_back, raw_bytes, refuse_without_values, weights_of


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

    assert list(held_state(model)) == ["0.bias", "0.weight", "1.bias"]


def test_a_model_without_values_is_refused() -> None:
    with pytest.raises(InputError, match="bias has no values"):
        refuse_without_values(nn.Linear(2, 2, device="meta"))


def test_saved_weights_come_back(tmp_path: Path) -> None:
    saved, fresh = nn.Linear(2, 2), nn.Linear(2, 2)
    save_file({name: tensor.clone() for name, tensor in held_state(saved).items()}, tmp_path / "w.safetensors")

    put_back(fresh, tmp_path / "w.safetensors")

    assert weights_of(fresh) == weights_of(saved)


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(2, 2)}, tmp_path / "w.safetensors")

    with pytest.raises(InputError, match="bias is missing"):
        put_back(nn.Linear(2, 2), tmp_path / "w.safetensors")
    with pytest.raises(UnreadableFileError, match="--with-weights"):
        put_back(nn.Linear(2, 2), tmp_path / "gone.safetensors")


@pytest.mark.parametrize(
    "tensor", [torch.empty(0), torch.ones((), dtype=torch.bool), torch.ones(2, dtype=torch.bfloat16)]
)
def test_bytes_are_taken_from_any_tensor(tensor: torch.Tensor) -> None:
    assert len(raw_bytes(tensor)) == tensor.numel() * tensor.element_size()

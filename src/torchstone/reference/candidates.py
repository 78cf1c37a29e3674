"""What somebody's port gave, from a file or from Python -> named tensors; no pickle from outside is run."""

import pickle
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor

from torchstone.errors import InputError, UnreadableFileError
from torchstone.reference.names import OUTPUTS
from torchstone.reference.structure import tensors_of

_DAMAGED = (OSError, ValueError, RuntimeError, KeyError, EOFError, zipfile.BadZipFile, pickle.UnpicklingError,
            safetensors.SafetensorError)  # fmt: skip


def read_candidate(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors, .npz or .pt file by name."""
    read = _READERS.get(path.suffix)
    if read is None:
        msg = f"{path} is not a kind of file that can be compared; give one of {', '.join(_READERS)}"
        raise InputError(msg)
    if not path.is_file():
        msg = f"cannot read {path}: there is no such file"
        raise UnreadableFileError(msg)
    try:
        return read(path)
    except _DAMAGED as error:
        reason = str(error).strip().splitlines()
        msg = f"{path} cannot be read as {path.suffix} ({reason[0][:160] if reason else type(error).__name__})"
        raise UnreadableFileError(msg) from error


def candidate_tensors(value: Any) -> dict[str, Tensor]:
    """Tensors by name from what a port returned: a tensor, an output object, or a dict of tensors or arrays."""
    if isinstance(value, np.ndarray):
        return {OUTPUTS: _from_numpy(value)}
    if isinstance(value, Mapping):
        value = {name: _from_numpy(one) if isinstance(one, np.ndarray) else one for name, one in value.items()}
    return {name or OUTPUTS: tensor.detach().cpu() for name, tensor in tensors_of(value, "")}


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    return dict(load_file(path, device="cpu"))


def _read_npz(path: Path) -> dict[str, Tensor]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: _from_numpy(arrays[name]) for name in arrays.files}


def _read_pt(path: Path) -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about protocols of pickle that it then refuses
        return candidate_tensors(torch.load(path, map_location="cpu", weights_only=True))


def _from_numpy(array: "np.ndarray[Any, Any]") -> Tensor:
    return torch.from_numpy(np.array(array, order="C"))


_READERS: dict[str, Callable[[Path], dict[str, Tensor]]] = {
    ".safetensors": _read_safetensors,
    ".npz": _read_npz,
    ".pt": _read_pt,
    ".pth": _read_pt,
}

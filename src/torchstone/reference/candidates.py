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

_DAMAGED = (OSError, ValueError, RuntimeError, LookupError, EOFError, zipfile.BadZipFile,
            safetensors.SafetensorError)  # fmt: skip
_BFLOAT16_IN_NUMPY = np.dtype("V2")  # what numpy writes for bfloat16, which it does not know


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
        words = reason[0][:160] if reason else "it is empty"
        msg = f"{path} cannot be read as {path.suffix} ({words}); it is damaged or of another kind: save it again"
        raise UnreadableFileError(msg) from error


def candidate_tensors(value: Any) -> dict[str, Tensor]:
    """Tensors by name from what a port returned: a tensor, an output object, or a dict of tensors or arrays."""
    value = _with_tensors(value, OUTPUTS)
    return {name or OUTPUTS: tensor.detach().cpu() for name, tensor in tensors_of(value, "")}


def _with_tensors(value: Any, name: str) -> Any:
    """The same value with tensors for its arrays, also inside dicts, lists and tuples."""
    if isinstance(value, np.ndarray):
        return _from_numpy(name, value)
    if isinstance(value, Mapping):
        return {key: _with_tensors(one, str(key)) for key, one in value.items()}
    if type(value) in (list, tuple):
        return [_with_tensors(one, f"{name}/{place}") for place, one in enumerate(value)]
    return value


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    return dict(load_file(path, device="cpu"))


def _read_npz(path: Path) -> dict[str, Tensor]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: _from_numpy(name, arrays[name]) for name in arrays.files}


def _read_pt(path: Path) -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about protocols of pickle that it then refuses
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:  # torch's own words tell how to run what is in the file: not here
            msg = (
                f"{path} holds more than tensors, and nothing else is read; write torch.save({{'logits': logits}}, ...)"
            )
            raise UnreadableFileError(msg) from error
        except LookupError as error:  # the bytes of another kind of file, taken for pickle
            msg = "torch.save did not write it"
            raise ValueError(msg) from error
    return candidate_tensors(content)


def _from_numpy(name: str, array: "np.ndarray[Any, Any]") -> Tensor:
    if array.dtype == _BFLOAT16_IN_NUMPY:
        return torch.from_numpy(np.array(array, order="C").view(np.uint16)).view(torch.bfloat16)
    try:
        return torch.from_numpy(np.array(array, order="C"))
    except TypeError as error:
        msg = f"{name} has elements of type {array.dtype}, which torch does not know; save it as float32"
        raise InputError(msg) from error


_READERS: dict[str, Callable[[Path], dict[str, Tensor]]] = {
    ".safetensors": _read_safetensors,
    ".npz": _read_npz,
    ".pt": _read_pt,
    ".pth": _read_pt,
}

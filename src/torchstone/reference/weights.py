"""The state a model ran with: its fingerprint, and putting a saved one back."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from torchstone.errors import InputError, UnreadableFileError
from torchstone.numerics.dtypes import dtype_name
from torchstone.record.golden import Weights
from torchstone.reference.keepable import why_not_plain


def held_state(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer by path, also buffers that no checkpoint holds; a tied one under its first path."""
    held = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor.detach() for name, tensor in sorted(held.items())}


def refuse_without_values(model: nn.Module) -> None:
    """Golden data is taken from a model whose tensors all have values, as plain numbers."""
    for name, tensor in held_state(model).items():
        if tensor.is_meta:
            msg = f"{name} has no values (it is on the meta device), so there is no golden data; build it on the cpu"
            raise InputError(msg)
        reason = why_not_plain(tensor)
        if reason:
            msg = f"{name} has no plain values ({reason}), so there is no golden data; build the model without it"
            raise InputError(msg)


def weights_of(model: nn.Module) -> Weights:
    """The fingerprint of a model's state."""
    return _fingerprint(held_state(model))


def _fingerprint(state: Mapping[str, Tensor]) -> Weights:
    digest = sha256()
    size_bytes = 0
    for name, tensor in sorted(state.items()):
        raw = raw_bytes(tensor)
        size_bytes += len(raw)
        digest.update(f"{name}|{tuple(tensor.shape)}|{tensor.dtype}|".encode())
        digest.update(raw)
    return Weights(sha256=digest.hexdigest(), tensors=len(state), size_bytes=size_bytes)


def raw_bytes(tensor: Tensor) -> bytes:
    """The bytes of a tensor's elements, in order."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def put_back(model: nn.Module, path: Path, made_with: Weights) -> None:
    """Load a saved state into a model that was built anew; it must be the state that the golden run had."""
    saved = _saved_state(path)
    if _fingerprint(saved).sha256 != made_with.sha256:
        msg = f"{path} was changed after the reference was made: it holds other weights; make the reference again"
        raise UnreadableFileError(msg)
    state = held_state(model)
    for name in sorted(state.keys() | saved.keys()):
        there, here = _kind(saved.get(name)), _kind(state.get(name))
        if there != here:
            msg = f"{path} does not fit the model: {name} is {there} there and {here} here; it is another model now"
            raise InputError(msg)
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(saved[name])


def _saved_state(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        msg = f"{path} is missing, and the golden data was made with it; make the reference again with --with-weights"
        raise UnreadableFileError(msg)
    try:
        return load_file(path, device="cpu")
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        msg = f"{path} cannot be read ({error}); make the reference again"
        raise UnreadableFileError(msg) from error


def _kind(tensor: Tensor | None) -> str:
    """A tensor's element type and shape, in words."""
    return "missing" if tensor is None else f"{dtype_name(tensor.dtype)}{list(tensor.shape)}"

"""Golden data on disk: golden_data.json, golden_data.safetensors, golden_data.pt and, where asked for, the weights."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec
import safetensors
import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from torchstone.errors import InputError, UnreadableFileError
from torchstone.record import codec
from torchstone.record.golden import GoldenData, Role
from torchstone.reference.keepable import why_not_saved
from torchstone.reference.names import INPUTS, MODULES, OUTPUTS
from torchstone.reference.sealing import sha256_of
from torchstone.reference.structure import plain_part
from torchstone.reference.weights import held_state

DATA_FILE = "golden_data.json"
TENSORS_FILE = "golden_data.safetensors"
TORCH_FILE = "golden_data.pt"
WEIGHTS_FILE = "weights.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """Golden data in memory: the document, and the tensors by name."""

    data: GoldenData
    tensors: Mapping[str, Tensor]

    def named(self, role: Role) -> dict[str, Tensor]:
        """The kept tensors of one role, in order."""
        return {one.name: self.tensors[one.name] for one in self.data.tensors if one.role is role and not one.reason}


def save_golden(folder: Path, golden: Golden, weights_of: nn.Module | None = None) -> Golden:
    """Write golden data, with the weights of a model where one is given; gives what was written."""
    if weights_of is None:
        (folder / WEIGHTS_FILE).unlink(missing_ok=True)  # those of an earlier reference
    else:
        codec.write_atomically(folder / WEIGHTS_FILE, _packed(_state_to_keep(weights_of)))
        weights = msgspec.structs.replace(golden.data.weights, file=WEIGHTS_FILE)
        golden = Golden(data=msgspec.structs.replace(golden.data, weights=weights), tensors=golden.tensors)
    packed = _packed(golden.tensors)
    sealed = msgspec.structs.replace(golden.data, tensors_sha256=sha256(packed).hexdigest())
    golden = Golden(data=sealed, tensors=golden.tensors)
    codec.write_atomically(folder / TENSORS_FILE, packed)
    codec.write_atomically(folder / TORCH_FILE, _torch_file(golden))
    text = msgspec.json.format(codec.encode(golden.data), indent=1)
    codec.write_atomically(folder / DATA_FILE, text + b"\n")
    return golden


def load_golden(folder: Path | str) -> Golden:
    """Read golden data back; the file of tensors must be the one that was written, with all that the document names."""
    folder = Path(folder)
    data = codec.load(folder / DATA_FILE, GoldenData)
    path = folder / TENSORS_FILE
    try:
        tensors = load_file(path, device="cpu")
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        msg = f"{path} cannot be read ({error}); make the reference again"
        raise UnreadableFileError(msg) from error
    for about in data.tensors:
        if about.reason:
            continue
        found = tensors.get(about.name)
        if found is None or (tuple(found.shape), f"torch.{about.dtype}") != (about.shape, str(found.dtype)):
            msg = f"{path} does not hold {about.name} as {DATA_FILE} says; make the reference again"
            raise UnreadableFileError(msg)
    if data.tensors_sha256 and data.tensors_sha256 != sha256_of(path):
        msg = f"{path} was changed after the reference was made: its SHA-256 is not that in {DATA_FILE}; make it again"
        raise UnreadableFileError(msg)
    return Golden(data=data, tensors=tensors)


def _state_to_keep(model: nn.Module) -> dict[str, Tensor]:
    state = held_state(model)
    for name, tensor in state.items():
        reason = why_not_saved(tensor)
        if reason:
            msg = f"the weights cannot be kept, for {name}: {reason}; drop --with-weights"
            raise InputError(msg)
    return state


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of a safetensors file; each tensor gets memory of its own, as the format asks."""
    return save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in sorted(tensors.items())})


def _torch_file(golden: Golden) -> bytes:
    """One dictionary that torch.load reads with weights_only=True."""
    content = {
        "schema": "torchstone/golden_data_pt/1",
        "model": golden.data.model,
        "seed": golden.data.seed,
        INPUTS: plain_part(golden.data.inputs, golden.tensors),
        OUTPUTS: plain_part(golden.data.outputs, golden.tensors),
        MODULES: {
            name.removeprefix(f"{MODULES}/"): tensor
            for name, tensor in golden.tensors.items()
            if name.startswith(f"{MODULES}/")
        },
    }
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()

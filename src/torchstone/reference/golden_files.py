"""Golden data on disk: tensor names, files, weights, and checksums that show whether a file was changed."""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path

import msgspec
import safetensors
import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from torchstone.errors import InputError, UnreadableFileError
from torchstone.numerics.dtypes import dtype_name
from torchstone.numerics.tensor_files import SAFETENSORS_DTYPES
from torchstone.record import codec
from torchstone.record.reference import Checklist, GoldenData, Role, Weights
from torchstone.reference.structure import plain_part

# --- Tensor names: inputs/..., outputs/..., modules/PATH/inputs/... and modules/PATH/outputs/... ---


INPUTS = "inputs"
OUTPUTS = "outputs"
MODULES = "modules"
ROOT = "(root)"


def module_name(path: str, call: int) -> str:
    """The prefix of a module's tensor names; calls after the first are counted: modules/norm#2."""
    again = f"#{call + 1}" if call else ""
    return f"{MODULES}/{path or ROOT}{again}"


# --- Which tensors can be saved ---


def why_not_saved(tensor: Tensor) -> str:
    """Why the values of a tensor cannot be saved; "" when they can."""
    if tensor.dtype not in SAFETENSORS_DTYPES and not why_not_plain(tensor):
        return f"safetensors has no {dtype_name(tensor.dtype)}"
    return why_not_plain(tensor)


def why_not_plain(tensor: Tensor) -> str:
    """Why a tensor is not a plain block of numbers; "" when it is one."""
    if type(tensor) not in (Tensor, nn.Parameter):
        return f"a {type(tensor).__name__} is not a plain tensor"
    if tensor.layout != torch.strided:
        return f"its layout is {str(tensor.layout).removeprefix('torch.')}"
    return "it is quantised" if tensor.is_quantized else ""


# --- Checksums of checked files ---


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of each file by name; a file that is not there has none."""
    return {name: sha256_of(folder / name) for name in names if (folder / name).is_file()}


def changed_files(folder: Path, checklist: Checklist) -> list[str]:
    """One sentence for each checked file that was changed or deleted since."""
    now = checksums(folder, checklist.seals)
    return [
        f"{name} was changed after it was checked" if name in now else f"{name} was deleted after it was checked"
        for name, sealed in checklist.seals.items()
        if now.get(name) != sealed
    ]


# --- Model state: its fingerprint, saving and loading ---


def model_state(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer by path, also non-persistent buffers; a tied one under its first path."""
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor.detach() for name, tensor in sorted(state.items())}


def require_values(model: nn.Module) -> None:
    """Refuse a model with a parameter or buffer that has no plain values: it gives no golden data."""
    for name, tensor in model_state(model).items():
        if tensor.is_meta:
            msg = f"{name} has no values (it is on the meta device), so there is no golden data; build it on the cpu"
            raise InputError(msg)
        reason = why_not_plain(tensor)
        if reason:
            msg = f"{name} has no plain values ({reason}), so there is no golden data; build the model without it"
            raise InputError(msg)


def weights_of(model: nn.Module) -> Weights:
    """The fingerprint of a model's state."""
    return _fingerprint(model_state(model))


def _fingerprint(state: Mapping[str, Tensor]) -> Weights:
    digest = sha256()
    size_bytes = 0
    hashes: dict[str, str] = {}
    for name, tensor in sorted(state.items()):
        raw = raw_bytes(tensor)
        hashes[name] = sha256(raw).hexdigest()
        size_bytes += len(raw)
        digest.update(f"{name}|{tuple(tensor.shape)}|{tensor.dtype}|".encode())
        digest.update(raw)
    return Weights(sha256=digest.hexdigest(), tensors=len(state), size_bytes=size_bytes, hashes=hashes)


def raw_bytes(tensor: Tensor) -> bytes:
    """The bytes of a tensor's elements, in order."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def load_state(model: nn.Module, path: Path, made_with: Weights) -> None:
    """Load a saved state into a rebuilt model; it must be the state of the golden run."""
    saved = _saved_state(path)
    if _fingerprint(saved).sha256 != made_with.sha256:
        msg = f"{path} was changed after the reference was made: its weights differ; make the reference again"
        raise UnreadableFileError(msg)
    state = model_state(model)
    for name in sorted(state.keys() | saved.keys()):
        there, here = _kind(saved.get(name)), _kind(state.get(name))
        if there != here:
            msg = (
                f"{path} does not match the model: {name} is {there} in the file and {here} in the model; "
                "make the reference again"
            )
            raise InputError(msg)
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(saved[name])


def _saved_state(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        msg = f"{path} is missing, and the golden data was made with it; make the reference again with --with-weights"
        raise UnreadableFileError(msg)
    return read_tensors(path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file of the reference."""
    try:
        return load_file(path, device="cpu")
    except (OSError, ValueError, RuntimeError, safetensors.SafetensorError) as error:  # torch maps it: RuntimeError
        msg = f"{path} cannot be read ({error}); make the reference again"
        raise UnreadableFileError(msg) from error


def _kind(tensor: Tensor | None) -> str:
    """A tensor's dtype and shape as text."""
    return "missing" if tensor is None else f"{dtype_name(tensor.dtype)}{list(tensor.shape)}"


# --- Files: golden_data.json, golden_data.safetensors, golden_data.pt and, on request, the weights ---


DATA_FILE = "golden_data.json"
TENSORS_FILE = "golden_data.safetensors"
TORCH_FILE = "golden_data.pt"
WEIGHTS_FILE = "weights.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """Golden data in memory: the document, and the tensors by name."""

    data: GoldenData
    tensors: Mapping[str, Tensor]
    folder: Path | None = None  # where it was read from; the noise floor is there

    def named(self, role: Role) -> dict[str, Tensor]:
        """The saved tensors of one role, in order."""
        return {one.name: self.tensors[one.name] for one in self.data.tensors if one.role is role and not one.reason}


def save_golden(folder: Path, golden: Golden, weights_of: nn.Module | None = None) -> Golden:
    """Write golden data, with the weights of a model where one is given; returns what was written."""
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
    """Read golden data; the tensor file must be unchanged and contain every tensor that the document lists."""
    folder = Path(folder)
    data = codec.load(folder / DATA_FILE, GoldenData)
    path = folder / TENSORS_FILE
    tensors = read_tensors(path)
    for about in data.tensors:
        if about.reason:
            continue
        found = tensors.get(about.name)
        if found is None or (tuple(found.shape), f"torch.{about.dtype}") != (about.shape, str(found.dtype)):
            msg = f"{path} does not match {DATA_FILE}: {about.name}; make the reference again"
            raise UnreadableFileError(msg)
    if data.tensors_sha256 and data.tensors_sha256 != sha256_of(path):
        msg = f"{path} was changed after the reference was made: its SHA-256 is not that in {DATA_FILE}; make it again"
        raise UnreadableFileError(msg)
    return Golden(data=data, tensors=tensors, folder=folder)


def _state_to_keep(model: nn.Module) -> dict[str, Tensor]:
    state = model_state(model)
    for name, tensor in state.items():
        reason = why_not_saved(tensor)
        if reason:
            msg = f"the weights cannot be saved: {name}: {reason}; drop --with-weights"
            raise InputError(msg)
    return state


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of a safetensors file; each tensor gets its own memory, as the format requires."""
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

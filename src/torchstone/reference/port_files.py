"""The tensors of a port: a file, a folder of files or a Python value -> tensors by name; no pickle is executed."""

import math
import os
import pickle
import re
import struct
import sys
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import safetensors
import torch
from safetensors.torch import load
from torch import Tensor

from torchstone.errors import InputError, UnreadableFileError
from torchstone.numerics.pickle_names import names_too_long
from torchstone.record.files import all_files_below, open_regular, problem_of_archive, read_file
from torchstone.reference.golden_files import OUTPUTS
from torchstone.reference.structure import tensors_of
from torchstone.reference.tensorbin import read_tensorbin
from torchstone.units import many

SETUP_FILE = "setup.json"
WEIGHTS = "weights"  # tensors below this name are the weights of the port, not results
_DAMAGED = (OSError, ValueError, RuntimeError, LookupError, EOFError, MemoryError, OverflowError, SyntaxError,
            TypeError, AttributeError, AssertionError, zipfile.BadZipFile, zlib.error, tokenize.TokenError,
            safetensors.SafetensorError, struct.error)  # fmt: skip
_BFLOAT16_IN_NUMPY = np.dtype("V2")  # what numpy writes for bfloat16, which it does not know
MAX_RATIO = 100  # of unpacked to compressed bytes of an archive, beyond
_MAX_UNPACKED_BYTES = 1 << 32
_MOST_DIMENSIONS = 64  # of an array in numpy
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PortTensors:
    """What a port gave: results and weights by name, and the files that say more about it."""

    origin: str
    tensors: dict[str, Tensor]  # in the order of the file or of the folder
    weights: dict[str, Tensor] = field(default_factory=dict)
    kept_as: dict[str, str] = field(default_factory=dict)  # element types that torch does not have: bfloat8_b
    setup: Path | None = None  # setup.json beside the tensors
    notes: tuple[str, ...] = ()


def read_port(candidate: object) -> PortTensors:
    """The tensors of a file, of a folder, or of what a port returned."""
    if not isinstance(candidate, str | Path):
        return _sorted_out("the candidate", candidate_tensors(candidate), {})
    path = Path(candidate)
    if path.is_dir():
        return _read_folder(path)
    tensors, kept_as = _read_file(path)
    beside = [path.with_suffix(f".{SETUP_FILE}"), path.with_name(SETUP_FILE)]
    return _sorted_out(str(path), tensors, kept_as, setup=next((one for one in beside if one.is_file()), None))


def _sorted_out(
    origin: str,
    found: Mapping[str, Tensor],
    kept_as: dict[str, str],
    *,
    setup: Path | None = None,
    notes: tuple[str, ...] = (),
) -> PortTensors:
    """Results and weights apart; each is a tensor that can be compared."""
    for name, tensor in found.items():
        if problem := _problem_of(tensor):
            msg = f"{origin}: {name:.80} {problem}"
            raise InputError(msg)
    prefix = f"{WEIGHTS}/"
    return PortTensors(
        origin=origin,
        tensors={name: tensor for name, tensor in found.items() if not name.startswith(prefix)},
        weights={name.removeprefix(prefix): one for name, one in found.items() if name.startswith(prefix)},
        kept_as=kept_as,
        setup=setup,
        notes=notes,
    )


def _problem_of(tensor: Tensor) -> str:
    """Why a tensor is not compared; "" where it is. A view of one number can have any size, and a file ask for it."""
    if tensor.layout != torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        return f"is {kind}, and only dense tensors are compared; save tensor.to_dense()"
    if tensor.dim() > _MOST_DIMENSIONS:
        return f"has {tensor.dim()} dimensions, and at most {_MOST_DIMENSIONS} are compared; save it with fewer"
    stored = 0 if tensor.is_meta else tensor.untyped_storage().nbytes()
    if not tensor.is_meta and tensor.nbytes > max(_MAX_UNPACKED_BYTES, MAX_RATIO * stored):
        return f"repeats {stored:,} bytes to {tensor.nbytes:,}, more than {MAX_RATIO} times; save what it repeats"
    return ""


# --- Folders: file names are tensor names, folders are paths ---


def _read_folder(folder: Path) -> PortTensors:
    found: dict[str, Tensor] = {}
    kept_as: dict[str, str] = {}
    sources: dict[str, Path] = {}
    other = []
    for path in sorted(all_files_below(folder), key=lambda one: _natural(one.relative_to(folder).as_posix())):
        if path.name == SETUP_FILE:
            continue
        if path.suffix not in _READERS:
            other.append(path.relative_to(folder).as_posix())
            continue
        tensors, types = _read_file(path, name=path.relative_to(folder).with_suffix("").as_posix())
        for own, tensor in tensors.items():
            name = f"{WEIGHTS}/{own.removeprefix(f'{WEIGHTS}/')}" if path.stem == WEIGHTS else own
            if name in found:
                msg = f"{name} is in {sources[name]} and in {path}; keep one of them"
                raise InputError(msg)
            found[name], sources[name] = tensor, path
        kept_as |= types
    if not found:
        msg = f"{folder} has no file with tensors; save them as {', '.join(_READERS)}"
        raise UnreadableFileError(msg)
    setup = folder / SETUP_FILE
    shown = ", ".join(other[:_SHOWN]) + (" ..." if len(other) > _SHOWN else "")
    notes = (f"not tensor files, and not read: {many(len(other), 'file')} in {folder}: {shown}",) if other else ()
    return _sorted_out(str(folder), found, kept_as, setup=setup if setup.is_file() else None, notes=notes)


def _natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts layer.10 after layer.9."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text)]


# --- Files ---


def read_candidate(path: Path) -> dict[str, Tensor]:
    """The tensors of one file by name."""
    return _read_file(path)[0]


def _read_file(path: Path, name: str | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors by name, and element types that torch does not have; a file without names has `name`, or its own."""
    if not path.is_file():
        msg = f"cannot read {path}: no such file"
        raise UnreadableFileError(msg)
    read = _READERS.get(path.suffix)
    if read is None:
        msg = f"{path} has an unknown file type for a comparison: {path.suffix!r}; use one of {', '.join(_READERS)}"
        raise InputError(msg)
    own_name = path.stem if name is None else name
    try:
        if path.suffix == ".tensorbin":
            tensor, kept_as = read_tensorbin(path)
            return {own_name: tensor}, {own_name: kept_as}
        with warnings.catch_warnings(action="ignore"):  # numpy and torch advise on files of old versions
            found = read(path)
    except _DAMAGED as error:
        lines = str(error).strip().splitlines()
        reason = lines[0][:160] if lines else "it is empty"
        msg = f"{path} cannot be read as {path.suffix} ({reason}); it is damaged or has another format: save it again"
        raise UnreadableFileError(msg) from error
    if isinstance(found, Tensor):
        return {own_name if name is not None or path.suffix == ".npy" else OUTPUTS: found}, {}
    return found, {}


def candidate_tensors(value: object) -> dict[str, Tensor]:
    """Tensors by name from the return value of a port: a tensor, an output object, or a dict of tensors or arrays."""
    converted = _with_tensors(value, OUTPUTS)
    return {name or OUTPUTS: tensor.detach().cpu() for name, tensor in tensors_of(converted, "")}


def _with_tensors(value: object, name: str) -> object:
    """The same value with tensors for its arrays, also inside dicts, lists and tuples."""
    if isinstance(value, np.ndarray):
        return _from_numpy(name, value)
    if isinstance(value, Mapping):
        return {key: _with_tensors(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):  # a named tuple keeps its field names
        return [_with_tensors(one, f"{name}/{place}") for place, one in enumerate(value)]
    return value


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    """In natural order of the names: the format keeps no other.

    The file is read, not mapped: a port that runs again writes it anew, and a mapped file that becomes shorter ends
    the process.
    """
    found = load(read_file(path, most_bytes=sys.maxsize - 1))
    return {name: found[name] for name in sorted(found, key=_natural)}


def _read_npz(path: Path) -> dict[str, Tensor]:
    with zipfile.ZipFile(path) as archive:
        unpacked_bytes = sum(one.file_size for one in archive.infolist())
        if problem := problem_of_archive(archive, path.stat().st_size):
            raise ValueError(problem)
        if unpacked_bytes > max(_MAX_UNPACKED_BYTES, MAX_RATIO * path.stat().st_size):
            msg = f"it unpacks to {unpacked_bytes:,} bytes, more than {MAX_RATIO} times its size"
            raise ValueError(msg)
        for one in archive.infolist():
            with archive.open(one) as member:
                _require_data(member, one.file_size)
    with np.load(path, allow_pickle=False) as arrays:
        return {name: _from_numpy(name, arrays[name]) for name in arrays.files}


_NPY_VERSIONS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,
}


def _require_data(file: IO[bytes], size_bytes: int) -> None:
    """Refuse an array file whose header asks for more data than it has: numpy allocates memory for all of it first."""
    version = np.lib.format.read_magic(file)
    width = 2 if version == (1, 0) else 4
    header_bytes = int.from_bytes(file.read(width), "little")
    if version not in _NPY_VERSIONS or header_bytes > size_bytes:  # numpy allocates what it says before it reads it
        msg = f"its header of {header_bytes:,} bytes is not one that numpy wrote"
        raise ValueError(msg)
    file.seek(-width, os.SEEK_CUR)
    shape, _, dtype = _NPY_VERSIONS[version](file)
    needed_bytes = math.prod(shape) * dtype.itemsize
    if dtype.itemsize == 0:
        msg = f"its elements of type {dtype} have no bytes"
        raise ValueError(msg)
    if min(shape, default=0) < 0 or needed_bytes > size_bytes - file.tell():
        msg = f"its shape {shape} needs {needed_bytes:,} bytes, and it has {size_bytes - file.tell():,}"
        raise ValueError(msg)


def _read_npy(path: Path) -> Tensor:
    with open_regular(path) as file:
        _require_data(file, path.stat().st_size)
    found = np.load(path, allow_pickle=False)
    return _from_numpy(path.name, found)


def _read_pt(path: Path) -> dict[str, Tensor] | Tensor:
    with open_regular(path) as file:
        if names_too_long(file):
            msg = "it names a class by more than a thousand characters"
            raise ValueError(msg)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # torch's message explains how to execute the file: do not repeat it
        way_out = "save with torch.save({'logits': logits}, ...)"
        msg = f"{path} contains more than tensors, and nothing else is read; {way_out}"
        raise UnreadableFileError(msg) from error
    except LookupError as error:  # the bytes of another file format, read as pickle
        msg = "torch.save did not write it"
        raise ValueError(msg) from error
    return content.detach() if isinstance(content, Tensor) else candidate_tensors(content)


def _from_numpy(name: str, array: np.ndarray) -> Tensor:
    if array.dtype == _BFLOAT16_IN_NUMPY:
        return torch.from_numpy(np.array(array, order="C").view(np.uint16)).view(torch.bfloat16)
    try:
        return torch.from_numpy(np.array(array, order="C").astype(array.dtype.newbyteorder("="), copy=False))
    except TypeError as error:
        msg = f"{name} has elements of type {array.dtype}, which torch does not support; save it as float32"
        raise InputError(msg) from error


def _read_one_tensorbin(path: Path) -> Tensor:
    return read_tensorbin(path)[0]


_READERS: dict[str, Callable[[Path], dict[str, Tensor] | Tensor]] = {
    ".safetensors": _read_safetensors,
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".pt": _read_pt,
    ".pth": _read_pt,
    ".tensorbin": _read_one_tensorbin,
}

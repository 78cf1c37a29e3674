"""Named tensors <-> a safetensors file, with torch and the standard library alone.

The format has no word for strides, wanted gradients and some element types. They stand in the metadata under
"torchstone", as JSON; other readers see contiguous tensors, and bytes where they do not know the element type.
"""

from __future__ import annotations

import ctypes
import json
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchstone.numerics.dtypes import dtype_name, dtype_named
from torchstone.temporary import replacing

_CODES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}
_CODE_OF = {dtype: code for code, dtype in _CODES.items()}
SAFETENSORS_DTYPES = frozenset(_CODE_OF)
_BYTES = "U8"  # the code of element types that the format does not know
_OWN = "torchstone"
_LENGTH_BYTES = 8
_ALIGNMENT = 8
_LONGEST_HEADER = 100_000_000


class TensorFileError(Exception):
    """A file is not a readable tensor file, or a tensor cannot be written."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write named tensors; the file is there as a whole or not at all."""
    plain = {name: _plain(name, tensor) for name, tensor in tensors.items()}
    order = sorted(plain, key=lambda name: (-plain[name].element_size(), name))  # keeps every tensor aligned
    header: dict[str, object] = {"__metadata__": {_OWN: json.dumps(_notes(tensors), sort_keys=True)}}
    end = 0
    for name in order:
        tensor = plain[name]
        start, end = end, end + tensor.numel() * tensor.element_size()
        known = tensor.dtype in _CODE_OF
        shape = list(tensor.shape) if known else [end - start]
        header[name] = {"dtype": _CODE_OF.get(tensor.dtype, _BYTES), "shape": shape, "data_offsets": [start, end]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % _ALIGNMENT)
    with replacing(path) as file:
        file.write(len(head).to_bytes(_LENGTH_BYTES, "little"))
        file.write(head)
        for name in order:
            file.write(bytes_of(plain[name]))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, laid out as they were; values are read from disk when they are first used."""
    try:
        if not path.is_file():
            raise FileNotFoundError(None, "there is no such file")
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        msg = f"cannot read {path}: {error}"
        raise TensorFileError(msg) from error
    try:
        header, start = _header(content)
        notes = json.loads(header.pop("__metadata__", {}).get(_OWN, "{}"))
        return {name: _tensor(content, start, entry, notes.get(name, {})) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        msg = f"{path} is not a readable tensor file ({error}); make it again"
        raise TensorFileError(msg) from error


def usual_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """The stride of a new tensor; one with a size of 1 may have another and be contiguous, and some ops look at it."""
    return torch.empty(tuple(shape), device="meta").stride()


def _plain(name: str, tensor: Tensor) -> Tensor:
    """The same values, contiguous and on the CPU."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        kind = "quantized" if tensor.is_quantized else "meta" if tensor.is_meta else str(tensor.layout)
        msg = f"tensor {name} cannot be written: it is {kind}; only dense tensors with values can"
        raise TensorFileError(msg)
    return tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()


def _notes(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    """What the format itself cannot say about each tensor."""
    notes: dict[str, dict[str, object]] = {}
    for name, tensor in tensors.items():
        note: dict[str, object] = {}
        if tensor.stride() != usual_stride(tensor.shape):
            note["stride"] = list(tensor.stride())
        if tensor.requires_grad:
            note["requires_grad"] = True
        if tensor.dtype not in _CODE_OF:
            note["dtype"] = dtype_name(tensor.dtype)
            note["shape"] = list(tensor.shape)
        if note:
            notes[name] = note
    return notes


def bytes_of(tensor: Tensor) -> memoryview | bytes:
    """The memory of a contiguous tensor on the CPU; valid while the tensor lives."""
    if tensor.numel() == 0:
        return b""
    length = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * length).from_address(tensor.data_ptr()))  # by address: numpy may not be here


def _header(content: mmap.mmap) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    if not 0 < length <= min(len(content) - _LENGTH_BYTES, _LONGEST_HEADER):
        msg = "its header does not fit into it"
        raise ValueError(msg)
    start = _LENGTH_BYTES + length
    header = json.loads(content[_LENGTH_BYTES:start])
    if not isinstance(header, dict):
        msg = "its header is not a table of tensors"
        raise TypeError(msg)
    return header, start


def _tensor(content: mmap.mmap, start: int, entry: dict[str, Any], note: dict[str, Any]) -> Tensor:
    dtype = dtype_named(note["dtype"]) if "dtype" in note else _CODES[entry["dtype"]]
    shape = note.get("shape", entry["shape"])
    first, end = entry["data_offsets"]
    count = (end - first) // dtype.itemsize
    if not 0 <= first <= end <= len(content) - start or count * dtype.itemsize != end - first:
        msg = "a tensor lies outside of it"
        raise ValueError(msg)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    if (start + first) % dtype.itemsize:
        aligned = bytearray(content[start + first : start + end])
        flat = torch.frombuffer(aligned, dtype=dtype)
    else:
        flat = torch.frombuffer(content, dtype=dtype, count=count, offset=start + first)
    tensor = flat.reshape(shape)
    laid_out = _strided(tensor, note["stride"]) if "stride" in note else tensor
    return laid_out.requires_grad_() if note.get("requires_grad") else laid_out


def _strided(tensor: Tensor, stride: list[int]) -> Tensor:
    """The same values laid out with these strides, as a view that repeats or overlaps itself where it did."""
    places = torch.zeros(tensor.shape, dtype=torch.int64)
    for dimension, (size, step) in enumerate(zip(tensor.shape, stride, strict=True)):
        along = [1] * tensor.dim()
        along[dimension] = size
        places += (torch.arange(size) * step).reshape(along)
    room = torch.empty(int(places.max()) + 1, dtype=tensor.dtype)
    as_bytes = torch.uint8 if tensor.element_size() == 1 else None  # 8-bit floats cannot be scattered
    if as_bytes is None:
        room[places.reshape(-1)] = tensor.reshape(-1)
    else:
        room.view(as_bytes)[places.reshape(-1)] = tensor.reshape(-1).view(as_bytes)
    return room.as_strided(tuple(tensor.shape), tuple(stride))

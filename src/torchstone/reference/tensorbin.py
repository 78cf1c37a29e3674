"""Read ttnn's .tensorbin files (`ttnn.dump_tensor`) without ttnn: the flatbuffer header, tiles, and block floats.

A file is the length of the header (8 bytes), the header (a flatbuffer) and the data. The tables that matter here are
`Tensor {spec, mesh shape, shards, topology}`, `TensorSpec {shape, layout}` and `TensorLayout {data type, kind of page
config, page config, memory config, alignment}`. Nothing is executed; every offset is checked against the file.
"""

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchstone.errors import UnreadableFileError
from torchstone.record.files import read_file

_WAY_OUT = "convert it with ttnn.to_torch and save it as .safetensors"

# --- Flatbuffers: tables and vectors by position ---


class _NotUnderstoodError(ValueError):
    """A file of this format that has something unknown in it."""


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a flatbuffer; a field that the writer left out has its default."""

    buffer: bytes
    position: int

    def _place(self, field: int) -> int | None:
        table = self.position - _unpack("<i", self.buffer, self.position)
        (size,) = struct.unpack_from("<H", self.buffer, _inside(self.buffer, table))
        entry = 4 + 2 * field
        if entry + 2 > size:
            return None
        offset = _unpack("<H", self.buffer, table + entry)
        return self.position + offset if offset else None

    def byte(self, field: int) -> int:
        place = self._place(field)
        return 0 if place is None else _unpack("<B", self.buffer, place)

    def number(self, field: int) -> int:
        place = self._place(field)
        return 0 if place is None else _unpack("<I", self.buffer, place)

    def target(self, field: int) -> int | None:
        """The position that an offset field points to."""
        place = self._place(field)
        return None if place is None else place + _unpack("<I", self.buffer, place)

    def table(self, field: int) -> "_Table | None":
        target = self.target(field)
        return None if target is None else _Table(self.buffer, target)

    def needed(self, field: int, what: str) -> "_Table":
        found = self.table(field)
        if found is None:
            msg = f"its header has no {what}"
            raise _NotUnderstoodError(msg)
        return found

    def numbers(self, field: int) -> list[int]:
        """A vector of 32-bit numbers."""
        target = self.target(field)
        if target is None:
            return []
        count = _unpack("<I", self.buffer, target)
        if target + 4 + 4 * count > len(self.buffer):
            msg = "a list of its header is longer than the header"
            raise _NotUnderstoodError(msg)
        return list(struct.unpack_from(f"<{count}I", self.buffer, target + 4))

    def tables(self, field: int) -> "list[_Table]":
        target = self.target(field)
        offsets = self.numbers(field)
        return [_Table(self.buffer, (target or 0) + 4 + 4 * row + offset) for row, offset in enumerate(offsets)]


def _inside(buffer: bytes, position: int) -> int:
    if not 0 <= position < len(buffer):
        msg = "an offset of its header points outside of it"
        raise _NotUnderstoodError(msg)
    return position


def _unpack(kind: str, buffer: bytes, position: int) -> int:
    (value,) = struct.unpack_from(kind, buffer, _inside(buffer, position))
    return int(value)


# --- Header -> what the data is ---

_LENGTH = 8  # bytes of the length of the header
_DTYPES = ("bfloat16", "float32", "uint32", "bfloat8_b", "bfloat4_b", "uint8", "uint16", "int32")
_ROW_MAJOR, _TILE = 1, 2
_INLINE = 1  # the data is in the same file
_FACE = 16
_BLOCK_BITS = {"bfloat8_b": 8, "bfloat4_b": 4}
_NUMPY = {"bfloat16": "<u2", "float32": "<f4", "uint32": "<u4", "uint8": "u1", "uint16": "<u2", "int32": "<i4"}
_LINE = 16
_MAX_BYTES = 16 << 30  # of one file, which is read as a whole
_MAX_HEADER = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec:
    """Shape, element type and arrangement of the data in a file."""

    shape: tuple[int, ...]
    dtype: str
    tile: tuple[int, int] | None  # None: row-major
    physical: tuple[int, int]  # rows and columns with padding
    data: tuple[int, int]  # first byte after the header, number of bytes

    @property
    def expected_bytes(self) -> int:
        """The bytes that such data takes."""
        elements = prod(self.physical)
        bits = _BLOCK_BITS.get(self.dtype)
        if bits is None:
            return elements * np.dtype(_NUMPY[self.dtype]).itemsize
        tile = prod(self.tile or (1, 1))
        return elements // tile * (_exponent_bytes(tile) + tile * bits // 8)


def _exponent_bytes(tile: int) -> int:
    """The bytes before the elements of a tile of block floats: an exponent for each block, in whole lines of 16."""
    return -(-tile // _FACE // _LINE) * _LINE


def read_tensorbin(path: Path) -> tuple[Tensor, str]:
    """The tensor of a file without its padding, and the element type that ttnn kept it in.

    Block floats (bfloat8_b, bfloat4_b) become float32, which holds their values exactly; unsigned integers that torch
    has no arithmetic for become int64. Raises UnreadableFileError for a file that is damaged or not understood.
    """
    content = read_file(path, most_bytes=_MAX_BYTES)
    try:
        spec, start = _read_header(content)
        return _without_padding(_elements(_data(content, start, spec), spec), spec), spec.dtype
    except (struct.error, _NotUnderstoodError) as error:
        reason = str(error) if isinstance(error, _NotUnderstoodError) else "its header is damaged"
        msg = f"{path} cannot be read as .tensorbin ({reason}); {_WAY_OUT}"
        raise UnreadableFileError(msg) from error


def _data(content: bytes, start: int, spec: _Spec) -> bytes:
    first, size = start + spec.data[0], spec.data[1]
    raw = content[first : first + size]
    if len(raw) != size or size != spec.expected_bytes:
        msg = f"it has {len(raw)} bytes of data where {spec.dtype}{list(spec.shape)} takes {spec.expected_bytes}"
        raise _NotUnderstoodError(msg)
    return raw


def _read_header(content: bytes) -> tuple[_Spec, int]:
    size = _unpack("<Q", content, 0)
    if not 0 < size <= min(len(content) - _LENGTH, _MAX_HEADER):
        msg = "it does not begin with a header of ttnn's current format"
        raise _NotUnderstoodError(msg)
    header = content[_LENGTH : _LENGTH + size]
    tensor = _Table(header, _unpack("<I", header, 0))
    about = tensor.needed(0, "tensor spec")
    shape = tuple(about.numbers(0))
    layout = about.needed(1, "tensor layout")
    number = layout.byte(0)
    if number >= len(_DTYPES):
        msg = f"data type {number} is unknown"
        raise _NotUnderstoodError(msg)
    tile = _tile(layout)
    spec = _Spec(
        shape=shape,
        dtype=_DTYPES[number],
        tile=tile,
        physical=_physical_shape(shape, layout.numbers(4)),
        data=_data_range(tensor),
    )
    if spec.dtype in _BLOCK_BITS and tile is None:
        msg = f"{spec.dtype} is not in tiles"
        raise _NotUnderstoodError(msg)
    return spec, _LENGTH + size


def _tile(layout: _Table) -> tuple[int, int] | None:
    kind = layout.byte(1)
    if kind == _ROW_MAJOR:
        return None
    if kind != _TILE:
        msg = f"page layout {kind} is unknown"
        raise _NotUnderstoodError(msg)
    tile = layout.needed(2, "page config").needed(0, "tile")
    height, width = tile.number(0), tile.number(1)
    if tile.byte(2) or not 0 < height <= 2 * _FACE or width not in (_FACE, 2 * _FACE) or height & (height - 1):
        msg = f"tiles of {height}x{width}{', transposed,' if tile.byte(2) else ''} are not supported"
        raise _NotUnderstoodError(msg)
    return height, width


def _data_range(tensor: _Table) -> tuple[int, int]:
    """Where the data is; shards of several devices are read only if all of them are the same bytes."""
    found = set()
    shards = tensor.tables(2)
    for shard in shards:
        place = shard.target(1)
        if shard.byte(0) != _INLINE or place is None:
            msg = "its data is in another file"
            raise _NotUnderstoodError(msg)
        found.add(struct.unpack_from("<QQ", shard.buffer, _inside(shard.buffer, place)))
    if len(found) != 1:
        mesh = tensor.needed(1, "mesh shape").numbers(0)
        msg = f"it has {len(found)} shards of a mesh {mesh}, and which part is where is not known; gather them first"
        raise _NotUnderstoodError(msg)
    offset, size = found.pop()
    return int(offset), int(size)


def _physical_shape(shape: tuple[int, ...], alignment: list[int]) -> tuple[int, int]:
    """Rows and columns with padding: each dimension, with all above it, is rounded up to its alignment."""
    width = height = 1
    for place in range(1, max(len(shape), len(alignment)) + 1):
        size = shape[-place] if place <= len(shape) else 1
        to = alignment[-place] if place <= len(alignment) else 1
        if to < 1:
            msg = "an alignment is 0"
            raise _NotUnderstoodError(msg)
        if place == 1:
            width = -(-size // to) * to
        else:
            height = -(-(height * size) // to) * to
    return height, width


# --- Data -> a tensor in the golden order, without padding ---


def _elements(raw: bytes, spec: _Spec) -> Tensor:
    """The elements as rows and columns, padding included."""
    if spec.tile is None:
        return _plain(np.frombuffer(raw, dtype=_NUMPY[spec.dtype]), spec.dtype).reshape(spec.physical)
    height, width = spec.tile
    rows, columns = spec.physical
    if rows % height or columns % width:
        msg = f"{rows}x{columns} elements are not whole tiles of {height}x{width}"
        raise _NotUnderstoodError(msg)
    if spec.dtype in _BLOCK_BITS:
        flat = torch.from_numpy(_block_floats(raw, height * width, _BLOCK_BITS[spec.dtype]))
    else:
        flat = _plain(np.frombuffer(raw, dtype=_NUMPY[spec.dtype]), spec.dtype)
    face = min(height, _FACE)
    split = (rows // height, columns // width, height // face, width // _FACE, face, _FACE)
    return flat.reshape(split).permute(0, 2, 4, 1, 3, 5).reshape(rows, columns)


def _plain(array: "np.ndarray[tuple[int], np.dtype[np.generic]]", dtype: str) -> Tensor:
    if dtype == "bfloat16":
        return torch.from_numpy(array.astype(np.uint16)).view(torch.bfloat16)
    wide = array.astype(np.int64) if dtype in ("uint16", "uint32") else array.copy()
    return torch.from_numpy(wide)


def _block_floats(raw: bytes, tile: int, bits: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    """Sixteen elements share an exponent; each has a sign and a magnitude whose leading 1 is explicit.

    A tile is the exponents of its blocks, then the elements, for 4 bits the lower half of a byte first.
    """
    blocks = tile // _FACE
    ahead = _exponent_bytes(tile)
    tiles = np.frombuffer(raw, dtype=np.uint8).reshape(-1, ahead + tile * bits // 8)
    exponents, packed = tiles[:, :blocks].astype(np.int32), tiles[:, ahead:]
    if bits == 4:  # noqa: PLR2004 - two elements in a byte
        packed = np.stack((packed & 0xF, packed >> 4), axis=-1).reshape(len(tiles), tile)
    magnitude = (packed & ((1 << (bits - 1)) - 1)).astype(np.float32)
    sign = np.where(packed >> (bits - 1), np.float32(-1), np.float32(1))
    scale = np.repeat(exponents - 127 - (bits - 2), _FACE, axis=1)
    with np.errstate(over="ignore"):
        values = np.ldexp(sign * magnitude, scale).astype(np.float32)
    # exponent 255: a magnitude of the leading 1 alone is an infinity, any other with that bit is a NaN
    values[np.isinf(values) & (magnitude != 1 << (bits - 2))] = np.nan
    return values


def _without_padding(physical: Tensor, spec: _Spec) -> Tensor:
    """The logical tensor: columns are cut, and of the rows those of each padded matrix."""
    if not spec.shape:
        return physical.reshape(-1)[:1].reshape(())
    if 0 in spec.shape:
        return physical.new_empty(spec.shape)
    *batch, rows, columns = (1, *spec.shape)
    count = prod(batch)
    if physical.shape[0] % count:
        msg = "its rows are padded in a way that is not supported"
        raise _NotUnderstoodError(msg)
    matrices = physical.reshape(count, -1, physical.shape[1])
    return matrices[:, :rows, :columns].reshape(spec.shape).contiguous()

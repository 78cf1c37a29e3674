"""A tensor type's text -> TensorType: shape, element type, where it lies, and how many bytes that takes."""

import re
from collections.abc import Mapping
from math import prod

from torchstone.record.memory import Buffer, TensorType

HOST = "host"

_TILE_BYTES = {
    "f32": 4096, "si32": 4096, "i32": 4096, "u32": 4096, "ui32": 4096,
    "bf16": 2048, "f16": 2048, "u16": 2048, "ui16": 2048, "si16": 2048, "i16": 2048,
    "u8": 1024, "ui8": 1024, "si8": 1024, "i8": 1024, "i1": 1024,
    "bfp_f8": 1088, "bfp_bf8": 1088, "bfp_f4": 576, "bfp_bf4": 576, "bfp_f2": 320, "bfp_bf2": 320,
}  # fmt: skip
_WIDE_BYTES = {"f64": 8, "i64": 8, "si64": 8, "ui64": 8}  # on the host only
_TILE_ELEMENTS = 32 * 32
_BUFFER_TYPES = {"dram": "DRAM", "l1": "L1", "l1_small": "L1_SMALL", "trace": "TRACE", "system_memory": HOST}

_TENSOR = re.compile(r"tensor<((?:[\d?]+x)*)(![\w.]+<(?:[^<>]|<[^<>]*>)*>|[\w.]+)(?:, (.*))?>", re.DOTALL)
_TILE = re.compile(r"!tt(?:core)?\.tile<(\d+)x(\d+), (\w+)>")
_MEMREF = re.compile(r"memref<((?:\d+x)*)(!tt(?:core)?\.tile<\d+x\d+, \w+>|\w+), #([\w.]+)(?:<(\w+)>)?")
_GRID = re.compile(r"<(\d+(?:x\d+)*)[,>]")
_SHARDING = re.compile(r"<(interleaved|single_bank|height_sharded|width_sharded|block_sharded|nd_sharded)>")
_ALIAS = re.compile(r"#[A-Za-z_]\w*\b(?![.<])")


def read_type(text: str, aliases: Mapping[str, str] | None = None) -> TensorType:
    """Read a type; what is no tensor, or not understood, keeps its text and has no sizes."""
    match = _TENSOR.fullmatch(text)
    if match is None:
        return TensorType(text=text)
    dims, element, layout = match.groups()
    if aliases and layout:
        layout = expand_aliases(layout, aliases)
    dtype = _element_name(element)
    short = f"{dims}{dtype}"
    if "?" in dims:
        return TensorType(text=short, dtype=dtype)
    shape = tuple(int(size) for size in dims.split("x")[:-1])
    buffer = _read_buffer(layout) if layout else None
    stored = buffer.dtype if buffer else dtype
    return TensorType(
        text=short, shape=shape, dtype=dtype, logical_bytes=elements_bytes(prod(shape), stored), buffer=buffer
    )


def expand_aliases(text: str, aliases: Mapping[str, str]) -> str:
    """Replace #names by what they stand for."""
    for _ in range(4):  # a layout names a buffer type: two levels in practice
        expanded = _ALIAS.sub(lambda match: aliases.get(match.group(), match.group()), text)
        if expanded == text:
            break
        text = expanded
    return text


def elements_bytes(elements: int, dtype: str) -> int | None:
    """Bytes that elements take without padding; None for an element type that is not known."""
    if dtype in _WIDE_BYTES:
        return elements * _WIDE_BYTES[dtype]
    tile_bytes = _TILE_BYTES.get(dtype)
    return None if tile_bytes is None else -(-elements * tile_bytes // _TILE_ELEMENTS)


def explain_padding(tensor: TensorType) -> str:
    """Why the tensor takes more than its elements: 'last dim 2 padded to 32: 16x'; "" when it does not."""
    if tensor.shape is None or tensor.buffer is None or not tensor.buffer.tiled or not tensor.logical_bytes:
        return ""
    rows, columns = (1, 1, *tensor.shape)[-2:]
    parts = [
        f"{name} dim {size} padded to {-(-size // 32) * 32}: {_times(-(-size // 32) * 32 / size)}"
        for name, size in (("last", columns), ("second-last", rows))
        if size and size % 32
    ]
    factor = tensor.buffer.padded_bytes / tensor.logical_bytes
    if not parts:
        return f"shards padded to whole tiles: {_times(factor)}" if factor > 1 else ""
    return " and ".join(parts) + (f", {_times(factor)} in all" if len(parts) > 1 else "")


def _times(factor: float) -> str:
    return f"{factor:.0f}x" if factor >= 10 or factor == int(factor) else f"{factor:.3g}x"  # noqa: PLR2004 - two digits


def _element_name(element: str) -> str:
    tile = _TILE.fullmatch(element)
    return tile.group(3) if tile else element


def _read_buffer(layout: str) -> Buffer | None:
    memref = _MEMREF.search(layout)
    if memref is None:
        return None
    dims, element, named, inside = memref.groups()
    sizes = [int(size) for size in dims.split("x")[:-1]]
    tile = _TILE.fullmatch(element)
    dtype = _element_name(element)
    page_bytes = _page_bytes(sizes, dtype, tile)
    if page_bytes is None:
        return None
    sharding = _SHARDING.search(layout)
    found = sharding.group(1) if sharding else ""
    pages = prod(sizes) if tile else prod(sizes[:-1])
    shards = _cores(layout[: memref.start()]) if found.endswith("sharded") else 1
    return Buffer(
        memory=_BUFFER_TYPES.get(inside or named, inside or named),
        dtype=dtype,
        tiled=tile is not None,
        sharding=found,
        padded_bytes=pages * page_bytes * shards,
        page_bytes=page_bytes,
        pages=pages,
    )


def _page_bytes(sizes: list[int], dtype: str, tile: re.Match[str] | None) -> int | None:
    if tile is None:
        return elements_bytes(sizes[-1] if sizes else 1, dtype)
    return elements_bytes(int(tile.group(1)) * int(tile.group(2)), dtype)


def _cores(before_memref: str) -> int:
    grids = _GRID.findall(before_memref)
    return prod(int(size) for size in grids[0].split("x")) if grids else 1

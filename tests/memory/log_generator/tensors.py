"""Tensors as the compiler spells them, and what they take; written apart from the code under test."""

from dataclasses import dataclass
from math import prod

TILE_BYTES = {"f32": 4096, "bf16": 2048, "si32": 4096, "bfp_bf8": 1088, "bfp_bf4": 576}
ELEMENT_BYTES = {"f32": 4, "bf16": 2, "si32": 4}
BUFFERS = {"DRAM": "dram", "L1": "l1", "host": "system_memory"}


def tiles_of(size: int) -> int:
    return -(-size // 32)


@dataclass(frozen=True)
class Tensor:
    """One tensor: shape, element type and where it lies."""

    shape: tuple[int, ...]
    dtype: str = "bf16"
    memory: str = "DRAM"
    tiled: bool = True
    grid: tuple[int, int] | None = None  # cores, when sharded

    @property
    def rows(self) -> int:
        """Rows in memory: all dims but the last, the second-last rounded up to a tile for each outer index."""
        *outer, rows, _ = (1, 1, *self.shape)
        return prod(outer) * (tiles_of(rows) * 32 if self.tiled else rows)

    @property
    def columns(self) -> int:
        return self.shape[-1] if self.shape else 1

    def shard_tiles(self) -> tuple[int, int]:
        rows, columns = self.rows // 32, tiles_of(self.columns)
        if self.grid is None:
            return rows, columns
        return -(-rows // self.grid[0]), -(-columns // self.grid[1])

    def logical_bytes(self) -> int:
        if self.dtype in ELEMENT_BYTES:
            return prod(self.shape) * ELEMENT_BYTES[self.dtype]
        return -(-prod(self.shape) * TILE_BYTES[self.dtype] // 1024)

    def padded_bytes(self) -> int:
        if not self.tiled:
            return self.logical_bytes()
        rows, columns = self.shard_tiles()
        cores = 1 if self.grid is None else self.grid[0] * self.grid[1]
        return rows * columns * TILE_BYTES[self.dtype] * cores

    def bank_bytes(self, banks: int, row_alignment: int = 32) -> int:
        if not self.tiled:
            row = -(-self.columns * ELEMENT_BYTES[self.dtype] // row_alignment) * row_alignment
            return -(-self.rows // banks) * row
        rows, columns = self.shard_tiles()
        pages = rows * columns
        return (pages if self.grid else -(-pages // banks)) * TILE_BYTES[self.dtype]

    def layout(self, *, new_dialect: bool, short_buffer: bool = False) -> str:
        rank = max(len(self.shape), 1)
        dims = ", ".join(f"d{index}" for index in range(rank))
        memref = self._memref()
        buffer = f"#{BUFFERS[self.memory]}" if short_buffer else f"#ttnn.buffer_type<{BUFFERS[self.memory]}>"
        kind = "" if self.memory == "host" else ", <interleaved>" if self.grid is None else ", <block_sharded>"
        return (
            f"#ttnn.ttnn_layout<({dims}) -> ({self._linear()}), {self._grid(new_dialect=new_dialect)}, "
            f"memref<{memref}, {buffer}>{kind}{self._cores(new_dialect=new_dialect)}>"
        )

    def _memref(self) -> str:
        if not self.tiled:
            return f"{self.rows}x{self.columns}x{self.dtype}"
        rows, columns = self.shard_tiles()
        return f"{rows}x{columns}x!ttcore.tile<32x32, {self.dtype}>"

    def _linear(self) -> str:
        if len(self.shape) < 2:
            return "0, d0"
        strides: list[str] = []
        size = 1
        for index in range(len(self.shape) - 2, -1, -1):
            strides.insert(0, f"d{index} * {size}" if size > 1 else f"d{index}")
            rows = self.shape[index]
            size *= tiles_of(rows) * 32 if self.tiled and index == len(self.shape) - 2 else rows
        return f"{' + '.join(strides)}, d{len(self.shape) - 1}"

    def _grid(self, *, new_dialect: bool) -> str:
        if self.grid is None:
            return "<1x1>"
        cores = f"{self.grid[0]}x{self.grid[1]}"
        return f"<{cores}>" if new_dialect else f"<{cores}, (d0, d1) -> (0, d0, d1)>"

    def _cores(self, *, new_dialect: bool) -> str:
        if self.grid is None or not new_dialect:
            return ""
        return f", core_ranges = <[#ttnn.core_range<(0,0), ({self.grid[1] - 1},{self.grid[0] - 1})>]>"

    def text(self, *, new_dialect: bool = False, layout: str = "") -> str:
        element = self.dtype if self.dtype in ELEMENT_BYTES else f"!ttcore.tile<32x32, {self.dtype}>"
        shape = "".join(f"{size}x" for size in self.shape)
        return f"tensor<{shape}{element}, {layout or self.layout(new_dialect=new_dialect)}>"

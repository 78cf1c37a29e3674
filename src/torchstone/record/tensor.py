"""A tensor without its values: shape, element type and how it lies in memory."""

import re
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from math import prod
from operator import mul

import msgspec

from torchstone.record.base import Record, Size

_ELEMENT_BITS = {
    "bool": 8,
    "uint8": 8,
    "int8": 8,
    "quint8": 8,
    "qint8": 8,
    "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8,
    "float8_e5m2": 8,
    "float8_e5m2fnuz": 8,
    "float8_e8m0fnu": 8,
    "float4_e2m1fn_x2": 8,  # two values in one element
    "quint4x2": 4,
    "quint2x4": 2,
    "bits1x8": 8,
    "bits2x4": 8,
    "bits4x2": 8,
    "bits8": 8,
    "bits16": 16,
    "uint16": 16,
    "int16": 16,
    "float16": 16,
    "bfloat16": 16,
    "uint32": 32,
    "int32": 32,
    "qint32": 32,
    "float32": 32,
    "complex32": 32,
    "uint64": 64,
    "int64": 64,
    "float64": 64,
    "complex64": 64,
    "complex128": 128,
} | {f"{sign}int{bits}": bits for sign in ("", "u") for bits in range(1, 8)}


class Block(Record, frozen=True, kw_only=True):
    """A format whose values share a scale: the shape of a block in the last two dimensions, and its bits."""

    rows: int
    columns: int
    value_bits: int
    scale_bits: int  # of a block, its zero point included
    padded: bool = False  # whole blocks are stored, as tiles are
    flat: bool = False  # a block goes on in the next row
    shared: int = 0  # blocks whose scales are themselves stored as parts of a scale of 32 bits; 0: none are
    column_bits: int = 0  # of each column of a matrix
    matrix_bits: int = 0  # of each matrix

    @property
    def element_bits(self) -> float:
        """Bits of one element of a full block with its share of the scales."""
        scales = self.scale_bits + (_SHARED_BITS / self.shared if self.shared else 0)
        return self.value_bits + scales / (self.rows * self.columns)

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor."""
        *outer, rows, columns = (1, 1, *shape)
        if self.flat:
            rows, columns = min(rows, 1), rows * columns
        blocks = -(-rows // self.rows) * -(-columns // self.columns)
        values = blocks * self.rows * self.columns if self.padded else rows * columns
        bits = values * self.value_bits + blocks * self.scale_bits + columns * self.column_bits
        bits += (-(-blocks // self.shared) * _SHARED_BITS if self.shared else 0) + (self.matrix_bits if values else 0)
        return (prod(outer) * bits + 7) // 8


_SHARED_BITS = 32
_NF4_TABLE, _SCALE_TABLE, _OFFSET = 16 * 32, 256 * 32, 32  # bits that bitsandbytes keeps with each matrix
_BLOCKS = {
    "mxfp8": Block(rows=1, columns=32, value_bits=8, scale_bits=8),  # OCP microscaling formats
    "mxfp6": Block(rows=1, columns=32, value_bits=6, scale_bits=8),
    "mxfp4": Block(rows=1, columns=32, value_bits=4, scale_bits=8),
    "nvfp4": Block(rows=1, columns=16, value_bits=4, scale_bits=8),
    # bitsandbytes, of 4 bits; with double quantization, the scales have 8 bits and 256 of them share one
    "nf4": Block(rows=1, columns=64, value_bits=4, scale_bits=32, flat=True, matrix_bits=_NF4_TABLE),
    "nf4_double": Block(rows=1, columns=64, value_bits=4, scale_bits=8, flat=True, shared=256,
                        matrix_bits=_NF4_TABLE + _SCALE_TABLE + _OFFSET),
    # Tiles of 32 x 32 with one exponent for each 16 values: 1088 and 576 bytes
    "bfloat8_b": Block(rows=32, columns=32, value_bits=8, scale_bits=64 * 8, padded=True),
    "bfloat4_b": Block(rows=32, columns=32, value_bits=4, scale_bits=64 * 8, padded=True),
}  # fmt: skip
# int4_g128: a scale of 16 bits for 128 values of a row. int4_g128_s32_z8: one of 32 bits, and a zero point of 8.
# int4_g128_z4_order: GPTQ, which keeps the group of each column. float8_block: as DeepSeek-V3 is published.
_GROUPED = re.compile(
    r"(?:int(?P<bits>[2-8])|float8)_(?:g(?P<group>[1-9]\d{0,5})|row|(?P<block>(?<=float8_)block))"
    r"(?:_s(?P<scale>8|16|32))?(?:_z(?P<zero>[2-8]|16|32))?(?P<order>_order)?"
)
_BLOCK_SIDE = 128
_ORDER_BITS = 32
_LONGEST_ROW = 1 << 62
_DENSE = frozenset({"strided", "_mkldnn"})  # layouts that store every element


def element_bits(dtype: str) -> int | None:
    """Bits that one element takes in memory, None for a type torchstone does not know."""
    return _ELEMENT_BITS.get(dtype)


@cache
def _block(name: str) -> Block | None:
    grouped = _GROUPED.fullmatch(name)
    if grouped is None:
        return _BLOCKS.get(name)
    in_blocks = grouped["block"] is not None
    return Block(
        rows=_BLOCK_SIDE if in_blocks else 1,
        columns=_BLOCK_SIDE if in_blocks else int(grouped["group"] or _LONGEST_ROW),
        value_bits=int(grouped["bits"] or 8),
        scale_bits=int(grouped["scale"] or (32 if in_blocks else 16)) + int(grouped["zero"] or 0),
        column_bits=_ORDER_BITS if grouped["order"] else 0,
    )


def stored_bits(name: str) -> float | None:
    """Bits of one element of a dtype, or of a block format with its share of the scale; None where not known."""
    block = _block(name)
    return block.element_bits if block else element_bits(name)


def has_blocks(name: str) -> bool:
    """Whether values of a format share scales, so that bytes depend on the form in which they are stored."""
    return _block(name) is not None


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor whose elements lie row by row."""
    return tuple(accumulate((max(size, 1) for size in shape[:0:-1]), mul, initial=1))[::-1] if shape else ()


class TensorSpec(Record, frozen=True, kw_only=True, tag="tensor"):
    """Everything about a tensor that a backend must know before it sees the values."""

    shape: tuple[Size, ...]
    dtype: str  # "float32", as torch names it, without "torch."
    stride: tuple[int, ...] | None = None  # None: the layout has no strides
    storage_offset: int = 0
    # Always written, since a default is omitted by identity: "cpu" that was read or put together is another object.
    device: str = msgspec.field(default_factory=lambda: "cpu")
    layout: str = msgspec.field(default_factory=lambda: "strided")
    requires_grad: bool = False
    subclass: str = ""  # class path of a tensor subclass, such as a packed weight; "" for a plain tensor
    stored_bytes: int | None = None  # of a subclass made of other tensors, or of blocks: the bytes that are stored

    @property
    def elements(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def is_dense(self) -> bool:
        """Whether every element is stored; how many a sparse or nested tensor stores is not recorded."""
        return self.layout in _DENSE

    @property
    def is_packed(self) -> bool:
        """Whether it is a subclass made of other tensors, such as a weight of torchao."""
        return bool(self.subclass) and self.stored_bytes is not None

    @property
    def is_contiguous(self) -> bool:
        """Whether elements lie row by row without gaps, as torch has it; True where the layout has no strides."""
        strides = contiguous_strides(self.shape) if self.stride is None else self.stride
        pairs = zip(self.shape, strides, contiguous_strides(self.shape), strict=True)
        return not self.elements or all(size == 1 or step == expected for size, step, expected in pairs)

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the elements alone; None where the element type or the number of stored elements is not known."""
        if self.stored_bytes is not None or not self.is_dense:
            return self.stored_bytes
        if (block := _block(self.dtype)) is not None:
            return block.size_bytes(self.shape)
        bits = _ELEMENT_BITS.get(self.dtype)
        return None if bits is None else (self.elements * bits + 7) // 8

    @property
    def short(self) -> str:
        """Element type and shape as compilers write them: f32[1,128,4096]."""
        for long, letter in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
            if self.dtype.startswith(long):
                return f"{letter}{self.dtype.removeprefix(long)}[{','.join(map(str, self.shape))}]"
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class ExternalTensor(Record, frozen=True, kw_only=True):
    """A tensor that was there before the forward pass began."""

    tensor: int
    kind: str  # parameter, buffer, input, constant
    name: str  # the parameter's path, the input's name, or where the constant was first seen
    lasts: bool = True  # False: the model put another one in its place while it ran


class Tensor(Record, frozen=True, kw_only=True):
    """One tensor of a trace; a view is a tensor of its own that shares a storage."""

    index: int
    spec: TensorSpec
    storage: int


class TensorTable(Record, frozen=True, kw_only=True):
    """All tensors of a trace, as columns; `table[i]` is tensor number i."""

    specs: tuple[TensorSpec, ...] = ()  # each distinct spec once
    spec_of: tuple[int, ...] = ()
    storage_of: tuple[int, ...] = ()
    external: tuple[ExternalTensor, ...] = ()
    gradients: dict[int, int] = {}  # parameter -> its gradient, after a backward pass
    left: dict[str, int] | None = None  # by name: what modules hold after the run and did not before; None: not known

    def __len__(self) -> int:
        return len(self.spec_of)

    def __getitem__(self, index: int) -> Tensor:
        index = range(len(self))[index]  # counts from the end, too, and ends where the table ends
        return Tensor(index=index, spec=self.specs[self.spec_of[index]], storage=self.storage_of[index])

"""The memory of a trace on a device that stores matrices in whole tiles, such as 32 x 32 numbers on Tenstorrent.

A piece of memory has the form in which it was there or an op left it, and its last two dimensions are filled up; a
vector takes a row of tiles. Images lie as rows of pixels with their channels, and the kernels of a convolution as one
matrix: so convolutions read them there, and so blocks of values share their scales. A tensor whose channels were moved
to the end has such rows already, and what a cache keeps is no image, whatever computed it. Whole numbers, and tables of
which rows are looked up, are not in tiles.
"""

from collections.abc import Collection, Sequence
from enum import Enum, auto
from math import prod

from msgspec.structs import replace

from torchstone.cost.boundary_tensors import Ends
from torchstone.cost.registry import find_price
from torchstone.cost.shorten import Short
from torchstone.cost.storages import Storages
from torchstone.record.base import Record
from torchstone.record.cost import Category, Kind
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace

_READ_IMAGES = frozenset((Kind.CONVOLUTION, Kind.POOLING))
_READ_MATRICES = frozenset((Kind.MATMUL, Kind.ATTENTION))
_CHANNELS = {"in_channels", "out_channels"}  # attributes of convolutions
_MATRIX_RANK = 2
_IMAGE_RANK = 3  # at least: batch, channels, a line of pixels


class Form(Enum):
    """How a tensor lies in memory."""

    MATRICES = auto()  # its last two dimensions are matrices
    IMAGE = auto()  # rows of pixels with their channels
    KERNEL = auto()  # of a convolution: a row for each output


def in_tiles(short: Short, storages: Storages, tile: int | None) -> Storages:
    """The same memory with each piece in whole tiles; unchanged without a tile."""
    if tile is None:
        return storages
    sizes = list(storages.sizes)
    for storage, form in tiled_forms(short, storages).items():
        sizes[storage] = max(sizes[storage], form.size_bytes(tile))
    return replace(storages, sizes=sizes)


class TiledForm(Record, frozen=True, kw_only=True):
    """How a piece of memory is laid out in tiles."""

    spec: TensorSpec
    form: Form

    def size_bytes(self, tile: int) -> int:
        """Its bytes in whole tiles."""
        return _padded(self.spec, tile, self.form)

    def sizes_bytes(self, tile: int, captured: int, batch: int, dim: int | None = None) -> list[int]:
        """Its bytes with another batch: with `dim` as its dimension, or for each one that it may be."""
        shape = self.spec.shape
        if captured == batch or not shape:
            return [self.size_bytes(tile)]
        dims = [one for one, length in enumerate(shape) if length % captured == 0]
        first = shape[0] == captured and (captured == 1 or shape.count(captured) == 1 or self.form is Form.IMAGE)
        known = 0 if dim is None and first else dim
        sizes = []
        for one in (dims or [0]) if known is None else [known]:
            grown = (*shape[:one], -(-shape[one] * batch // captured), *shape[one + 1 :])
            spec = replace(self.spec, shape=grown, stride=None, storage_offset=0)
            sizes.append(_padded(spec, tile, self.form))
        return sizes

    def squared_bytes(self, tile: int, captured: int, batch: int) -> int:
        """No less than its bytes with another batch where it has one row and one column for each of it."""
        shape = self.spec.shape
        if len(shape) != _MATRIX_RANK:
            return -(-self.size_bytes(tile) * batch**2 // captured**2)
        grown = tuple(-(-length * batch // captured) for length in shape)
        return _padded(replace(self.spec, shape=grown, stride=None, storage_offset=0), tile, self.form)

    def cut(self, length: int, part: int, dims: Sequence[int]) -> "TiledForm | None":
        """The part of it with fewer rows or columns: of the first of these dimensions that has the length; or None."""
        shape = list(self.spec.shape)
        at = next((dim for dim in dims if -dim <= len(shape) and shape[dim] == length), None)
        if at is None or self.form is not Form.MATRICES or self.spec.is_packed:
            return None
        shape[at] = part
        cut = replace(self.spec, shape=tuple(shape), stride=None, storage_offset=0, stored_bytes=None)
        return TiledForm(spec=cut, form=self.form)


def tiled_forms(short: Short, storages: Storages) -> dict[int, TiledForm]:
    """The pieces of memory that lie in tiles, by storage."""
    table = short.trace.tensors
    forms: dict[int, int] = {}  # storage -> the spec of its first tensor
    for storage, spec in zip(table.storage_of, table.spec_of, strict=True):
        forms.setdefault(storage, spec)
    tables, images = _uses(short.trace)
    categories = storages.categories
    weights = {storage for storage in images if categories[storage] is Category.WEIGHTS}
    images -= {storage for storage in images if categories[storage] is Category.KV_CACHE}
    return {
        storage: TiledForm(spec=table.specs[spec], form=_form(storage, images, weights))
        for storage, spec in forms.items()
        if storages.sizes[storage] and storage not in tables
    }


def image_forms(trace: Trace, ends: Ends) -> dict[int, Form]:
    """The storages of images and of the kernels of convolutions, and how they lie."""
    _, images = _uses(trace)
    caches = ends.caches_in | ends.caches_out
    return {storage: _form(storage, images, ends.weights) for storage in images - caches}


def _form(storage: int, images: Collection[int], weights: Collection[int]) -> Form:
    if storage not in images:
        return Form.MATRICES
    return Form.KERNEL if storage in weights else Form.IMAGE


def _uses(trace: Trace) -> tuple[set[int], set[int]]:
    """The storages of tables that are looked up in, and those of images and of the kernels of convolutions."""
    ops, storage_of = trace.ops, trace.tensors.storage_of
    kinds = [entry.kind if (entry := find_price(one.op)) else Kind.UNPRICED for one in ops.signatures]
    tables: set[int] = set()
    images = _Images(trace)
    for signature, inputs, outputs in zip(ops.signature_of, ops.inputs, ops.outputs, strict=True):
        kind = kinds[signature]
        if kind is Kind.INDEXING:
            tables.update(map(storage_of.__getitem__, inputs[:1]))
        elif kind in _READ_IMAGES:
            images.add(inputs)
            images.add(outputs)
        elif kind not in _READ_MATRICES:
            images.pass_on(inputs, outputs)
    return tables, images.storages | (weights_of(trace, _CHANNELS) - used_storages(trace))


def used_storages(trace: Trace) -> set[int]:
    """The storages that an op reads or makes."""
    ops, storage_of = trace.ops, trace.tensors.storage_of
    return {storage_of[one] for columns in (ops.inputs, ops.outputs) for row in columns for one in row}


def weights_of(trace: Trace, *attributes: Collection[str]) -> set[int]:
    """The storages of parameters of modules that have all of one of these sets of attributes."""
    storage_of = trace.tensors.storage_of
    return {
        storage_of[parameter.tensor]
        for module in trace.modules
        if any({name for name, _ in module.attributes}.issuperset(names) for names in attributes)
        for parameter in module.parameters
    }


class _Images:
    """The tensors of a trace that are images or kernels, with their channels in the second dimension."""

    def __init__(self, trace: Trace) -> None:
        self._table = trace.tensors
        self._first: dict[int, int] = {}  # storage -> its first tensor, in whose form it was there or was left
        for tensor, storage in enumerate(self._table.storage_of):
            self._first.setdefault(storage, tensor)
        self._tensors: set[int] = set()
        self.storages: set[int] = set()

    def add(self, tensors: Sequence[int]) -> None:
        """Tensors that a convolution reads or makes."""
        for tensor in tensors:
            self._tensors.add(tensor)
            first = self._first[self._table.storage_of[tensor]]
            if first == tensor or _has_channels_of(self._shape(first), self._shape(tensor)):
                self.storages.add(self._table.storage_of[tensor])

    def pass_on(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """What is computed from an image is one as long as its channels stay where they are."""
        shapes = [self._shape(tensor) for tensor in inputs if tensor in self._tensors]
        for tensor in outputs if shapes else ():
            if any(_has_channels_of(self._shape(tensor), shape) for shape in shapes):
                self._tensors.add(tensor)
                if self._first[self._table.storage_of[tensor]] == tensor:  # not one that was there before
                    self.storages.add(self._table.storage_of[tensor])

    def _shape(self, tensor: int) -> tuple[int, ...]:
        return self._table.specs[self._table.spec_of[tensor]].shape


def _has_channels_of(shape: Sequence[int], image: Sequence[int]) -> bool:
    """Whether the second dimension still has the channels of an image, or a part of them."""
    if len(shape) < _IMAGE_RANK or len(image) < _IMAGE_RANK:
        return False
    others = sum(one != other for one, other in zip(shape, image, strict=False))
    return tuple(shape[:2]) == tuple(image[:2]) or (len(shape) == len(image) and others <= 1)


def shape_in_memory(spec: TensorSpec, form: Form) -> tuple[int, ...]:
    """The shape as which a tensor lies: that of one matrix for an image or a kernel."""
    if form is Form.MATRICES or len(spec.shape) < _IMAGE_RANK:
        return spec.shape
    first, second, *rest = spec.shape
    return (first, second * prod(rest)) if form is Form.KERNEL else (first * prod(rest), second)


def _padded(spec: TensorSpec, tile: int, form: Form) -> int:
    if not spec.is_dense or spec.is_packed or "float" not in spec.dtype or not spec.elements:
        return spec.size_bytes or 0
    *outer, rows, columns = (1, 1, *shape_in_memory(spec, form))
    whole = (*outer, -(-rows // tile) * tile, -(-columns // tile) * tile)
    return TensorSpec(shape=whole, dtype=spec.dtype).size_bytes or 0

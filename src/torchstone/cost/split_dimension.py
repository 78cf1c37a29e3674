"""Which dimension of split data the devices share, and what an op over that dimension makes them exchange.

The parts of the devices repeat in memory: a projection to 64 columns repeats every 64 elements, the heads of
[batch, heads, tokens, width] every heads x tokens x width. So each view of the data tells which of its dimensions is
split. Of a slice, as of one of three matrices that were projected together, and of what is computed from it, the
dimension is not known: such data is taken to be split by heads.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from torchstone.cost.registry import numbers
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec, contiguous_strides

_SUMS = (
    "aten.sum.", "aten.amax.", "aten.amin.", "aten.max.", "aten.min.", "aten.any.", "aten.all.", "aten.prod.",
    "aten.linalg_vector_norm.", "aten.norm.", "aten.logsumexp.",
)  # fmt: skip
_MEANS = ("aten.mean.", "aten.mse_loss.")
_LAST = (-1,)
_CHANNELS = (1,)
_OPERANDS = 2
_MATRICES = 3  # dimensions of matrices that are multiplied one by one


class Place(Enum):
    """Where the split dimension of data lies in a product with weights."""

    SUMMED = "each device has sums over its part"
    BATCH = "each device has matrices of its own"
    KEPT = "each device has rows of its own, and needs all of the weights"


class SplitDim(NamedTuple):
    """A dimension of a view, and how many of its entries all devices have together before the parts repeat."""

    place: int
    parts: int


def split_dim(spec: TensorSpec, period: int | None) -> SplitDim | None:
    """The outermost dimension of a view within a period; None where the view is a part of it."""
    if period is None:
        return None
    strides = spec.stride or contiguous_strides(spec.shape)
    inside = [
        (stride, place)
        for place, (size, stride) in enumerate(zip(spec.shape, strides, strict=True))
        if size > 1 and 0 < stride < period
    ]
    stride, place = max(inside, default=(0, 0))
    if not inside or period % stride or stride * spec.shape[place] % period:
        return None
    return SplitDim(place, period // stride)


def period_of(spec: TensorSpec, dim: SplitDim) -> int | None:
    """After how many elements the parts of the devices repeat in the memory of a tensor with this dimension split."""
    strides = spec.stride or contiguous_strides(spec.shape)
    found = strides[dim.place] * dim.parts
    return found if split_dim(spec, found) == dim else None


def made_dim(kind: Kind, call: OpSignature, dims: Sequence[SplitDim | None], made: TensorSpec) -> SplitDim | None:
    """The split dimension of what an op makes of data with these; `dims` has None for whole data."""
    specs = call.input_specs
    found = [(spec, dim) for spec, dim in zip(specs, dims, strict=True) if dim is not None]
    if kind is Kind.MATMUL:
        return _of_product(specs[-_OPERANDS:], dims[-_OPERANDS:], made)
    if kind is Kind.ATTENTION:
        found = found[:1]  # that of queries
    over = _dims_of(kind, call, specs) if kind is Kind.REDUCTION else ()
    places = {_moved(spec, dim, made, over) for spec, dim in found}
    return places.pop() if len(places) == 1 else None


def _moved(spec: TensorSpec, dim: SplitDim, made: TensorSpec, over: Sequence[int]) -> SplitDim | None:
    """The dimension in a result, which has lost those that were reduced, or has more in front."""
    rank, fewer = len(made.shape), len(spec.shape) - len(made.shape)
    lost = sum(one < dim.place for one in over) if over and fewer == len(over) else fewer
    place = dim.place - lost
    same = 0 <= place < rank and made.shape[place] == spec.shape[dim.place]
    return SplitDim(place, dim.parts) if same else None


def _of_product(operands: Sequence[TensorSpec], dims: Sequence[SplitDim | None], made: TensorSpec) -> SplitDim | None:
    """Heads where both have them, else rows of the left or columns of the right operand."""
    for operand, dim, place in zip(operands, dims, (-2, -1), strict=True):
        rank = len(operand.shape)
        if dim is not None and (dim.place == rank + place or (rank == _MATRICES and dim.place == 0)):
            return _moved(operand, dim, made, ())
    return None


def place_in_product(call: OpSignature, dims: Sequence[SplitDim | None]) -> Place | None:
    """Where the split dimension of the data lies in a product of it with weights, which have none."""
    operands = zip(call.input_specs[-_OPERANDS:], dims[-_OPERANDS:], (-1, -2), strict=True) if dims else ()
    for spec, dim, summed in operands:
        if dim is not None:
            rank = len(spec.shape)
            is_batch = rank == _MATRICES and dim.place == 0
            return Place.SUMMED if dim.place == rank + summed else Place.BATCH if is_batch else Place.KEPT
    return None


def adds_up(kind: Kind, call: OpSignature, dims: Sequence[SplitDim | None]) -> bool:
    """Whether each device has a part of the sums of an op: of a product over the split dimension, or of a reduction."""
    specs = call.input_specs
    if kind is Kind.MATMUL:
        left, right = dims[-_OPERANDS:]
        lies = [
            dim is None or dim.place == len(spec.shape) + place
            for spec, dim, place in zip(specs[-_OPERANDS:], (left, right), (-1, -2), strict=True)
        ]
        return all(lies) and (left, right) != (None, None)
    made = sum(spec.elements for spec in call.output_specs)
    is_sum = call.op.startswith(_SUMS) or (call.op.startswith(_MEANS) and made == 1)
    return kind is Kind.REDUCTION and is_sum and is_over_split(kind, call, dims)


def is_over_split(kind: Kind, call: OpSignature, dims: Sequence[SplitDim | None]) -> bool:
    """Whether an op needs all of the split dimension: a norm, softmax, running sum, sort or reduction over it."""
    specs = call.input_specs
    over = _dims_of(kind, call, specs)
    return any(dim is not None and dim.place in over for dim in dims[:1])


def _dims_of(kind: Kind, call: OpSignature, specs: Sequence[TensorSpec]) -> tuple[int, ...]:
    """The dimensions of its first input that an op works over."""
    rank = len(specs[0].shape) if specs else 0
    if kind is Kind.NORMALISATION:
        shape, groups = numbers(call, "normalized_shape"), numbers(call, "group")
        found = tuple(range(rank - len(shape), rank)) if shape is not None else numbers(call, "dim") or ()
        found = _CHANNELS if groups == (1,) else found
    elif kind in (Kind.SORTING, Kind.SCAN):
        found = numbers(call, "dim") or _LAST
    elif kind is Kind.REDUCTION:
        found = numbers(call, "dim") or tuple(range(rank))
    else:
        found = ()
    return tuple(one % rank for one in found if rank)

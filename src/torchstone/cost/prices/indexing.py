"""Indexing: what is picked is read, not the tensor it is picked from."""

from itertools import zip_longest
from math import prod

from torchstone.cost.arguments import flag, optional_tensor, output, tensor, tensors, value_of, whole
from torchstone.cost.registry import Price, price_of
from torchstone.cost.traffic import bytes_for, bytes_of, reads_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.value import tensors_in

_MEAN = 1  # what torch numbers the mode of a bag that takes the mean; 0 is the sum, 2 the largest


@price_of(
    "aten.embedding", "aten.index", "aten._unsafe_index", "aten.index_select", "aten.gather", "aten.take",
    "aten.take_along_dim", "aten.masked_select",
    kind=Kind.INDEXING,
)  # fmt: skip
def pick(call: OpSignature) -> Price:
    """As many elements are read from the source as come out, and all of the indices."""
    source, made = call.input_specs[0], output(call)
    reads = list(reads_of(call))
    reads[0] = min(bytes_for(source, made.elements), reads[0]) if _is_table(call) else bytes_for(source, made.elements)
    return Price(reads=tuple(reads))


def _is_table(call: OpSignature) -> bool:
    """A small table that every row is picked from many times is read once."""
    return call.op.startswith("aten.embedding")


@price_of("aten.embedding_dense_backward", "aten._embedding_bag_dense_backward", kind=Kind.INDEXING)
def embedding_backward(call: OpSignature) -> Price:
    """Each row of the gradient is added to its row of the table, which starts as zeros."""
    return Price(flops=tensor(call, "grad_output", "grad").elements)


@price_of("aten._embedding_bag", "aten._embedding_bag_forward_only", kind=Kind.INDEXING)
def embedding_bag(call: OpSignature) -> Price:
    """Rows are picked and summed, or compared; weights scale them first, a mean divides each result."""
    table, indices = tensor(call, "weight"), tensor(call, "indices")
    picked = indices.elements * table.shape[-1]
    scaled = picked if optional_tensor(call, "per_sample_weights") is not None else 0
    divided = output(call).elements if value_of(call, "mode") == _MEAN else 0
    reads = list(reads_of(call))
    reads[0] = min(bytes_for(table, picked), reads[0])
    return Price(flops=picked + scaled + divided, reads=tuple(reads))


@price_of("aten._embedding_bag_backward", kind=Kind.INDEXING)
def embedding_bag_backward(call: OpSignature) -> Price:
    """The gradient of a bag is added to each row it was made of, scaled first by weights or for a mean."""
    gradient, indices = tensor(call, "grad"), tensor(call, "indices")
    added = indices.elements * gradient.shape[-1]
    scaled = optional_tensor(call, "per_sample_weights") is not None or value_of(call, "mode") == _MEAN
    return Price(flops=added * (1 + scaled))


@price_of("aten._embedding_bag_per_sample_weights_backward", kind=Kind.INDEXING)
def sample_weights_backward(call: OpSignature) -> Price:
    """A dot product of each row picked with the gradient of its bag."""
    picked = tensor(call, "indices").elements * tensor(call, "weight").shape[-1]
    reads = [
        min(bytes_for(tensor(call, "weight"), picked), bytes_of(spec)) if argument.name == "weight" else bytes_of(spec)
        for argument in call.arguments
        for spec in tensors_in(argument.value)
    ]
    return Price(flops=2 * picked, reads=tuple(reads))


@price_of("aten.embedding_renorm", "aten.embedding_renorm_", kind=Kind.INDEXING)
def embedding_renorm(call: OpSignature) -> Price:
    """The rows named are measured (power, sum) and scaled in place; at most all of the table."""
    table, indices = tensor(call, "self"), tensor(call, "indices")
    named = min(indices.elements * table.shape[-1], table.elements)
    moved = bytes_for(table, named)
    return Price(flops=3 * named, reads=(moved, bytes_of(indices)), writes=(moved,))


@price_of("aten.index_put", "aten.index_put_", "aten._index_put_impl", "aten._index_put_impl_",
          "aten._unsafe_index_put", kind=Kind.INDEXING)  # fmt: skip
def index_put(call: OpSignature) -> Price:
    """Values go to their places; with accumulate what is there is read and added to."""
    values, target = tensor(call, "values"), tensor(call, "self")
    places = _places(call)
    moved = bytes_for(target, places)
    return _scattered(call, moved=moved, flops=places if flag(call, "accumulate") else 0, source=bytes_of(values))


def _places(call: OpSignature) -> int:
    """Elements written: the indices broadcast, times the dimensions that are not indexed."""
    target, indices = tensor(call, "self"), tensors(call, "indices")
    if not indices:
        return target.elements
    if any(spec.dtype in ("bool", "uint8") for spec in indices):
        return max(tensor(call, "values").elements, 1)
    given = value_of(call, "indices")
    positions = [number for number, item in enumerate(getattr(given, "items", ())) if item is not None]
    named = prod(_broadcast_shape(*(spec.shape for spec in indices)))
    return named * prod(size for dim, size in enumerate(target.shape) if dim not in positions)


def _broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape, last dimension first: (3, 1) and (4) make (4, 3)."""
    aligned = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in aligned)


@price_of("aten.scatter", "aten.scatter_", "aten.index_copy", "aten.index_copy_", "aten.index_fill",
          "aten.put", "aten.put_", kind=Kind.INDEXING)  # fmt: skip
def scatter(call: OpSignature) -> Price:
    """Values go to the places that the index names; with `reduce` or `accumulate` what is there is combined."""
    elements = _named(call)
    combined = value_of(call, "reduce") is not None or flag(call, "accumulate")
    source = optional_tensor(call, "src", "source")
    moved = bytes_for(tensor(call, "self"), elements)
    return _scattered(call, moved=moved, flops=elements if combined else 0, source=0 if source is None else moved)


@price_of("aten.scatter_add", "aten.scatter_reduce", "aten.index_add", "aten.index_reduce", kind=Kind.INDEXING)
def scatter_add(call: OpSignature) -> Price:
    """As scatter, and each place is combined with what is there."""
    elements = _named(call)
    moved = bytes_for(tensor(call, "self"), elements)
    return _scattered(call, moved=moved, flops=elements, source=moved)


def _named(call: OpSignature) -> int:
    """Elements that an index names: of `index_` ops whole slices across the dimension, else one for each entry."""
    target, index = tensor(call, "self"), tensor(call, "index")
    if not call.op.startswith("aten.index_") or not target.shape:
        return index.elements
    dim = whole(call, "dim")
    return index.elements * prod(target.shape[:dim] + target.shape[dim:][1:])


def _scattered(call: OpSignature, *, moved: int, flops: int, source: int) -> Price:
    """In place only the places named are touched; otherwise the target is copied first."""
    target = bytes_of(tensor(call, "self"))
    in_place = call.op.split(".")[1].endswith("_")
    reads = []
    for argument in call.arguments:
        match argument.name:
            case "self":
                reads.append((moved if flops else 0) if in_place else target)
            case "values" | "src" | "source":
                reads.extend(source for _ in tensors_in(argument.value))
            case _:
                reads.extend(bytes_of(spec) for spec in tensors_in(argument.value))
    return Price(flops=flops, reads=tuple(reads), writes=(moved if in_place else target,))


@price_of("aten.nonzero", "aten.nonzero_static", "aten.argwhere", kind=Kind.INDEXING)
def nonzero(call: OpSignature) -> Price:
    """Each element is compared with zero."""
    return Price(flops=tensor(call, "self").elements)


@price_of("aten.one_hot", kind=Kind.INDEXING)
def one_hot(_call: OpSignature) -> Price:
    """Indices are read, the result is written."""
    return Price()


@price_of("aten.index_select_backward", "aten.gather_backward", kind=Kind.INDEXING)
def pick_backward(call: OpSignature) -> Price:
    """Each element of the gradient is added to its place."""
    return Price(flops=call.input_specs[0].elements)

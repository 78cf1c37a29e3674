"""Indexing: what is picked is read, not the tensor it is picked from."""

from torchstone.cost.arguments import flag, optional_tensor, output, tensor, tensors, value_of
from torchstone.cost.registry import Price, price_of
from torchstone.cost.traffic import bytes_for, bytes_of, reads_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature

_INDICES = ("indices", "index")


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
    """Rows are picked and summed."""
    table, indices = tensor(call, "weight"), tensor(call, "indices")
    picked = indices.elements * table.shape[-1]
    reads = list(reads_of(call))
    reads[0] = bytes_for(table, picked)
    return Price(flops=picked, reads=tuple(reads))


@price_of("aten.index_put", "aten.index_put_", "aten._index_put_impl_", "aten._unsafe_index_put", kind=Kind.INDEXING)
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
    count = max(spec.elements for spec in indices)
    for dim, size in enumerate(target.shape):
        if dim not in positions:
            count *= size
    return count


@price_of("aten.scatter", "aten.scatter_", "aten.index_copy", "aten.index_copy_", "aten.index_fill",
          "aten.put", "aten.put_", kind=Kind.INDEXING)  # fmt: skip
def scatter(call: OpSignature) -> Price:
    """Values go to the places that the index names."""
    target = tensor(call, "self")
    source = optional_tensor(call, "src", "source")
    elements = source.elements if source is not None and "index_" in call.op else tensor(call, "index").elements
    moved = bytes_for(target, elements)
    return _scattered(call, moved=moved, flops=0, source=0 if source is None else moved)


@price_of("aten.scatter_add", "aten.scatter_reduce", "aten.index_add", "aten.index_reduce",
          "aten.scatter.reduce", "aten.scatter.value_reduce", kind=Kind.INDEXING)  # fmt: skip
def scatter_add(call: OpSignature) -> Price:
    """As scatter, and each place is combined with what is there."""
    source, target = tensor(call, "src", "source"), tensor(call, "self")
    elements = source.elements if "index_" in call.op else tensor(call, "index").elements
    moved = bytes_for(target, elements)
    return _scattered(call, moved=moved, flops=elements, source=moved)


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
                reads.extend([source] if source else [])
            case _:
                reads.extend(_index_bytes(call, argument.name))
    return Price(flops=flops, reads=tuple(reads), writes=(moved if in_place else target,))


def _index_bytes(call: OpSignature, name: str) -> list[int]:
    many = tensors(call, name)
    one = optional_tensor(call, name)
    return [bytes_of(spec) for spec in (many or ((one,) if one is not None else ()))]


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

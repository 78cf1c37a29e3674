"""Sorting and searching: comparisons by the usual method, one FLOP each."""

from torchstone.cost.arguments import output, tensor, whole
from torchstone.cost.registry import Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature


def _steps(count: int) -> int:
    """The binary logarithm, rounded up."""
    return (count - 1).bit_length() if count > 1 else 0


@price_of("aten.sort", "aten.argsort", "aten.msort", kind=Kind.SORTING)
def sort(call: OpSignature) -> Price:
    """N * log2(n) comparisons along the dimension."""
    given = tensor(call, "self")
    dim = whole(call, "dim") if any(argument.name == "dim" for argument in call.arguments) else 0
    length = given.shape[dim] if given.shape else 1
    return Price(flops=given.elements * _steps(length))


@price_of("aten.topk", kind=Kind.SORTING)
def topk(call: OpSignature) -> Price:
    """A heap of k: log2(k) + 1 comparisons per element."""
    return Price(flops=tensor(call, "self").elements * (_steps(whole(call, "k")) + 1))


@price_of("aten.kthvalue", "aten.median", "aten.nanmedian", "aten.mode", kind=Kind.SORTING)
def select(call: OpSignature) -> Price:
    """Quickselect: about two comparisons per element."""
    return Price(flops=2 * tensor(call, "self").elements)


@price_of("aten.unique_consecutive", "aten.unique_dim_consecutive", kind=Kind.SORTING)
def unique_consecutive(call: OpSignature) -> Price:
    """Each element against the one before."""
    return Price(flops=tensor(call, "self").elements)


@price_of("aten._unique2", "aten._unique", "aten.unique_dim", kind=Kind.SORTING)
def unique(call: OpSignature) -> Price:
    """Sort, then compare neighbours."""
    count = tensor(call, "self").elements
    return Price(flops=count * (_steps(count) + 1))


@price_of("aten.bucketize", "aten.searchsorted", kind=Kind.SORTING)
def search(call: OpSignature) -> Price:
    """A binary search in the boundaries for each element."""
    table = tensor(call, "boundaries", "sorted_sequence")
    searched = output(call).elements
    return Price(flops=searched * (_steps(table.shape[-1] if table.shape else 1) + 1))

"""Reductions: so many FLOPs per element that goes in."""

from collections.abc import Mapping

from torchstone.cost.arguments import tensor, tensors
from torchstone.cost.registry import Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature

FLOPS_PER_INPUT: Mapping[str, int] = {
    "sum": 1,
    "nansum": 1,
    "mean": 1,  # the division per result is left out: one in many
    "prod": 1,
    "max": 1,
    "min": 1,
    "amax": 1,
    "amin": 1,
    "aminmax": 2,
    "argmax": 1,
    "argmin": 1,
    "any": 1,
    "all": 1,
    "_is_all_true": 1,
    "_is_any_true": 1,
    "count_nonzero": 1,
    "var": 4,  # mean, subtract, square, sum
    "std": 4,
    "var_mean": 4,
    "std_mean": 4,
    "norm": 2,  # power, sum
    "linalg_vector_norm": 2,
    "_foreach_norm": 2,
    "logsumexp": 4,  # max, subtract, exp, sum
    "histc": 2,  # scale, count
    "bincount": 1,
    "histogram": 2,
    "trace": 1,
    "equal": 1,
    "dist": 3,
    "_foreach_powsum": 2,
    "_foreach_max": 1,
    "linalg__powsum": 2,
    "_aminmax": 2,
    "_histogramdd_from_bin_cts": 2,  # scale, count
    "segment_reduce": 1,
    "hash_tensor": 1,
}


@price_of(*(f"aten.{name}" for name in FLOPS_PER_INPUT), kind=Kind.REDUCTION)
def reduction(call: OpSignature) -> Price:
    """The function's price, times the elements of the input, or of all tensors of a list."""
    name = call.op.split(".")[1]
    name = name if name in FLOPS_PER_INPUT else name.removesuffix("_")
    reduced = tensors(call, "self") or call.input_specs[:1]
    return Price(flops=FLOPS_PER_INPUT[name] * sum(spec.elements for spec in reduced))


@price_of("aten.max.other", "aten.min.other", kind=Kind.POINTWISE)
def larger_or_smaller(call: OpSignature) -> Price:
    """max(a, b) element by element."""
    return Price(flops=call.output_specs[0].elements)


@price_of("aten._local_scalar_dense", "aten.item", "aten.is_nonzero", kind=Kind.REDUCTION)
def read_back(call: OpSignature) -> Price:
    """One element goes to Python."""
    return Price(reads=(int(tensor(call, "self").size_bytes or 0),))


@price_of("aten.cross", "aten.linalg_cross", kind=Kind.POINTWISE)
def cross(call: OpSignature) -> Price:
    """Two products and a difference per element."""
    return Price(flops=3 * call.output_specs[0].elements)

"""Running sums and the like: each element is combined once with what came before."""

from collections.abc import Mapping

from torchstone.cost.registry import Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature

FLOPS_PER_ELEMENT: Mapping[str, int] = {
    "cumsum": 1,
    "cumprod": 1,
    "cummax": 1,
    "cummin": 1,
    "_cummax_helper": 1,
    "_cummin_helper": 1,
    "logcumsumexp": 5,  # max, difference, exp, log1p, add
}


@price_of(*(f"aten.{name}" for name in FLOPS_PER_ELEMENT), kind=Kind.SCAN)
def scan(call: OpSignature) -> Price:
    """The price of one step, times the elements."""
    name = call.op.split(".")[1]
    name = name if name in FLOPS_PER_ELEMENT else name.removesuffix("_")
    return Price(flops=FLOPS_PER_ELEMENT[name] * call.input_specs[0].elements)


@price_of("higher_order.associative_scan", kind=Kind.SCAN)
def associative_scan(call: OpSignature) -> Price:
    """One combination per element, of one multiply-add: what state-space models do; the function is not looked into."""
    return Price(flops=2 * sum(spec.elements for spec in call.output_specs))

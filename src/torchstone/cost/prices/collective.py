"""Exchanges between devices: what each device reads and writes of its own memory; the wire is not in it."""

from torchstone.cost.registry import Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature

_REDUCING = ("all_reduce", "all_reduce_coalesced", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced")
_MOVING = (
    "all_gather_into_tensor", "all_gather_into_tensor_coalesced", "all_gather_into_tensor_out", "all_to_all_single",
    "broadcast",
)  # fmt: skip


@price_of(*(f"_c10d_functional.{name}" for name in _REDUCING), kind=Kind.COLLECTIVE)
def reducing(call: OpSignature) -> Price:
    """One addition per element that goes in."""
    return Price(flops=sum(spec.elements for spec in call.input_specs))


@price_of(*(f"_c10d_functional.{name}" for name in _MOVING), kind=Kind.COLLECTIVE)
def moving(_call: OpSignature) -> Price:
    """Read and written, nothing computed."""
    return Price()


@price_of("_c10d_functional.wait_tensor", kind=Kind.VIEW)
def wait(call: OpSignature) -> Price:
    """The result was written by the exchange."""
    return Price(reads=(0,) * len(call.input_specs), writes=(0,) * len(call.output_specs))

"""Tensors made of nothing: the result is written, nothing is read."""

from torchstone.cost.registry import Price, price_of
from torchstone.cost.traffic import writes_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature

_FILLED = (
    "bartlett_window", "blackman_window", "eye", "full", "full_like", "hamming_window", "hann_window", "kaiser_window",
    "new_full", "new_ones", "new_zeros", "ones", "ones_like", "scalar_tensor", "zero", "zero_", "zeros", "zeros_like",
    "_efficientzerotensor", "fill_.Scalar", "vander",
)  # fmt: skip
_NOT_FILLED = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "_empty_affine_quantized",
)
_COUNTED = ("arange", "linspace", "logspace", "range")


@price_of(*(f"aten.{name}" for name in _FILLED), kind=Kind.FACTORY)
def filled(call: OpSignature) -> Price:
    """A like-argument gives only its shape."""
    return Price(reads=(0,) * len(call.input_specs))


@price_of("aten.fill", "aten.fill_", kind=Kind.FACTORY)
def fill(call: OpSignature) -> Price:
    """The value, one element, is read where it is a tensor."""
    specs = call.input_specs
    return Price(reads=(0, *(int(spec.size_bytes or 0) for spec in specs[1:])))


@price_of(*(f"aten.{name}" for name in _NOT_FILLED), kind=Kind.FACTORY)
def empty(call: OpSignature) -> Price:
    """Memory is set aside, not written."""
    return Price(reads=(0,) * len(call.input_specs), writes=(0,) * len(call.output_specs))


@price_of(*(f"aten.{name}" for name in _COUNTED), kind=Kind.FACTORY)
def counted(call: OpSignature) -> Price:
    """Start + i*step: a multiply-add per element."""
    made = sum(spec.elements for spec in call.output_specs)
    return Price(flops=2 * made, reads=(0,) * len(call.input_specs), writes=writes_of(call))

"""Normalisations and softmax, priced as the sum of their steps."""

from torchstone.cost.arguments import flag, optional_tensor, output, tensor
from torchstone.cost.registry import Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature

_STATISTICS = 4  # sum for the mean; subtract, square, sum for the variance
_NORMALISE = 1  # multiply by the reciprocal deviation; the difference is kept
_SOFTMAX = 5  # max, subtract, exp, sum, divide


def _affine(call: OpSignature) -> int:
    return sum(optional_tensor(call, name) is not None for name in ("weight", "bias"))


@price_of("aten.native_layer_norm", "aten.layer_norm", "aten.native_group_norm", "aten.group_norm",
          kind=Kind.NORMALISATION)  # fmt: skip
def layer_norm(call: OpSignature) -> Price:
    """Mean and variance (4), normalise (1), scale and shift (1 each, where given)."""
    return Price(flops=(_STATISTICS + _NORMALISE + _affine(call)) * tensor(call, "input").elements)


@price_of("aten.native_layer_norm_backward", "aten.native_group_norm_backward", kind=Kind.NORMALISATION)
def layer_norm_backward(call: OpSignature) -> Price:
    """Normalised input again (2), two sums (4), gradient of the input (5), of weight and bias (3)."""
    return Price(flops=14 * tensor(call, "grad_out").elements)


@price_of("aten._fused_rms_norm", "aten.rms_norm", kind=Kind.NORMALISATION)
def rms_norm(call: OpSignature) -> Price:
    """Square, sum, multiply by the reciprocal root; scale where given."""
    return Price(flops=(3 + _affine(call)) * tensor(call, "input").elements)


@price_of("aten._fused_rms_norm_backward", kind=Kind.NORMALISATION)
def rms_norm_backward(call: OpSignature) -> Price:
    """Normalised input again (1), one sum (2), gradient of the input (4), of the weight (2)."""
    return Price(flops=9 * tensor(call, "grad_out").elements)


@price_of(
    "aten.native_batch_norm", "aten._native_batch_norm_legit", "aten._native_batch_norm_legit_functional",
    "aten._native_batch_norm_legit_no_training", "aten._batch_norm_with_update", "aten._batch_norm_no_update",
    "aten.cudnn_batch_norm", "aten.miopen_batch_norm", "aten.batch_norm", "aten._batch_norm_with_update_functional",
    kind=Kind.NORMALISATION,
)  # fmt: skip
def batch_norm(call: OpSignature) -> Price:
    """With running statistics: subtract, multiply, scale, shift. In training the statistics come on top (4)."""
    training = flag(call, "training") or flag(call, "train") or "with_update" in call.op
    steps = (_STATISTICS + _NORMALISE if training else 2) + _affine(call)
    return Price(flops=steps * tensor(call, "input").elements)


@price_of("aten.native_batch_norm_backward", "aten.cudnn_batch_norm_backward", "aten.batch_norm_backward",
          kind=Kind.NORMALISATION)  # fmt: skip
def batch_norm_backward(call: OpSignature) -> Price:
    """As layer_norm_backward; with running statistics the gradient of the input is one product."""
    training = flag(call, "train") or flag(call, "training") or flag(call, "update")
    return Price(flops=(14 if training else 6) * tensor(call, "grad_out", "grad_output").elements)


@price_of("aten._softmax", "aten._safe_softmax", "aten._log_softmax", "aten.softmax", "aten.log_softmax",
          "aten._masked_softmax", kind=Kind.NORMALISATION)  # fmt: skip
def softmax(call: OpSignature) -> Price:
    """Max, subtract, exp, sum, divide (for the logarithm: log and subtract)."""
    return Price(flops=_SOFTMAX * output(call).elements)


@price_of("aten._softmax_backward_data", "aten._log_softmax_backward_data", "aten._masked_softmax_backward",
          kind=Kind.NORMALISATION)  # fmt: skip
def softmax_backward(call: OpSignature) -> Price:
    """Y * (g - sum(g * y)): multiply, sum, subtract, multiply."""
    return Price(flops=4 * output(call).elements)


@price_of("aten._weight_norm_interface", kind=Kind.NORMALISATION)
def weight_norm(call: OpSignature) -> Price:
    """V * (g / |v|): square and sum, then scale."""
    return Price(flops=3 * tensor(call, "v").elements)


@price_of("aten._weight_norm_interface_backward", kind=Kind.NORMALISATION)
def weight_norm_backward(call: OpSignature) -> Price:
    """Product and sum, then two scaled terms: six per element."""
    return Price(flops=6 * tensor(call, "saved_v").elements)


@price_of("aten.renorm", kind=Kind.NORMALISATION)
def renorm(call: OpSignature) -> Price:
    """Power, sum, scale."""
    return Price(flops=3 * tensor(call, "self").elements)

"""Losses: pointwise work and a sum."""

from collections.abc import Mapping

from torchstone.cost.arguments import flag, numbers, optional_tensor, tensor, value_of
from torchstone.cost.prices.matmul import multiply_adds
from torchstone.cost.registry import Price, price_of
from torchstone.cost.traffic import bytes_for, reads_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature

_SQUARED = 2
_LINEAR = ("linear_weight", "linear_bias")
_FLOPS_PER_ELEMENT: Mapping[str, int] = {
    "mse_loss": 3,  # subtract, square, sum
    "l1_loss": 3,
    "smooth_l1_loss": 5,
    "huber_loss": 5,
    "binary_cross_entropy": 7,
    "binary_cross_entropy_with_logits": 8,
    "kl_div": 4,
    "soft_margin_loss": 5,
    "mse_loss_backward": 3,
    "smooth_l1_loss_backward": 4,
    "huber_loss_backward": 4,
    "binary_cross_entropy_backward": 5,
    "soft_margin_loss_backward": 6,  # multiply, exp, multiply, add 1, divide, scale
}


@price_of(*(f"aten.{name}" for name in _FLOPS_PER_ELEMENT), kind=Kind.REDUCTION)
def pointwise_loss(call: OpSignature) -> Price:
    """The function's price, times the elements."""
    elements = max(spec.elements for spec in call.input_specs)
    return Price(flops=_FLOPS_PER_ELEMENT[call.op.split(".")[1]] * elements)


@price_of("aten.nll_loss_forward", "aten.nll_loss2d_forward", "aten.nll_loss", kind=Kind.REDUCTION)
def nll_loss(call: OpSignature) -> Price:
    """One log-probability is picked and added for each target."""
    given, target = tensor(call, "self"), tensor(call, "target")
    reads = list(reads_of(call))
    reads[0] = bytes_for(given, max(target.elements, 1))
    return Price(flops=2 * max(target.elements, 1), reads=tuple(reads))


@price_of("aten.nll_loss_backward", "aten.nll_loss2d_backward", kind=Kind.REDUCTION)
def nll_loss_backward(call: OpSignature) -> Price:
    """One value for each target in a tensor of zeros; the forward input gives only its shape."""
    reads = list(reads_of(call))
    reads[1] = 0
    return Price(flops=max(tensor(call, "target").elements, 1), reads=tuple(reads))


@price_of("aten.multi_margin_loss", "aten.multi_margin_loss_backward", kind=Kind.REDUCTION)
def multi_margin_loss(call: OpSignature) -> Price:
    """Each class against the right one: add the margin, subtract, compare, sum; one more for a square and a weight."""
    squared = value_of(call, "p") == _SQUARED
    weighted = optional_tensor(call, "weight") is not None
    return Price(flops=(4 + squared + weighted) * tensor(call, "self").elements)


@price_of("aten.multilabel_margin_loss_forward", "aten.multilabel_margin_loss_backward", kind=Kind.REDUCTION)
def multilabel_margin_loss(call: OpSignature) -> Price:
    """As multi_margin_loss for each right class; how many are right the values say, so all are counted."""
    given = tensor(call, "self")
    return Price(flops=4 * given.elements * given.shape[-1] if given.shape else 4)


@price_of("aten._ctc_loss_backward", kind=Kind.REDUCTION)
def ctc_loss_backward(call: OpSignature) -> Price:
    """The forward sums the other way round, and one term for each probability."""
    return Price(flops=_state_sums(call) + 4 * tensor(call, "log_probs").elements)


@price_of("aten._ctc_loss", kind=Kind.REDUCTION)
def ctc_loss(call: OpSignature) -> Price:
    """For each step and each of 2*L + 1 states: three log-additions."""
    return Price(flops=_state_sums(call))


def _state_sums(call: OpSignature) -> int:
    """L is the longest target; targets laid one after the other tell it only where the lengths are numbers."""
    log_probabilities, targets = tensor(call, "log_probs"), tensor(call, "targets")
    steps, batch = log_probabilities.shape[0], log_probabilities.shape[1]
    lengths = numbers(call, "target_lengths")
    longest = max(lengths) if lengths else targets.shape[-1]
    return 15 * steps * batch * (2 * longest + 1)


@price_of(
    "torch_nn._linear_cross_entropy_batch_chunked",
    "torch_nn._linear_cross_entropy_batch_chunked_no_reduction",
    kind=Kind.MATMUL,
)
def linear_cross_entropy(call: OpSignature) -> Price:
    """Logits (rows, k) @ (classes, k)^T, log-softmax (5), a pick; gradients made on the way are products as large.

    A gradient starts as softmax minus target, scaled (2 per logit); that of the bias sums it (1).
    """
    given, weight = tensor(call, "input"), tensor(call, "linear_weight")
    logits = given.elements // max(given.shape[-1], 1) * weight.shape[0]
    of_input, of_weight, of_bias = (flag(call, f"compute_{name}_grad") for name in ("input", *_LINEAR))
    matmul = multiply_adds(logits * given.shape[-1], given) * (1 + of_input + of_weight)
    biased = optional_tensor(call, "linear_bias") is not None
    gradient = 2 * (of_input or of_weight or of_bias) + of_bias
    rest = (5 + biased + gradient) * logits + 2 * tensor(call, "target").elements
    return Price(flops=matmul + rest, matmul_flops=matmul)

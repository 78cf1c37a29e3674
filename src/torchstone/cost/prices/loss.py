"""Losses: pointwise work and a sum."""

from collections.abc import Mapping

from torchstone.cost.arguments import tensor
from torchstone.cost.registry import Price, price_of
from torchstone.cost.traffic import bytes_for, reads_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature

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


@price_of("aten._ctc_loss_backward", kind=Kind.REDUCTION)
def ctc_loss_backward(call: OpSignature) -> Price:
    """The forward sums the other way round, and one term for each probability."""
    log_probabilities, targets = tensor(call, "log_probs"), tensor(call, "targets")
    steps, batch = log_probabilities.shape[0], log_probabilities.shape[1]
    return Price(flops=15 * steps * batch * (2 * targets.shape[-1] + 1) + 4 * log_probabilities.elements)


@price_of("aten._ctc_loss", kind=Kind.REDUCTION)
def ctc_loss(call: OpSignature) -> Price:
    """For each step and each of 2*L + 1 states: three log-additions."""
    log_probabilities, targets = tensor(call, "log_probs"), tensor(call, "targets")
    steps, batch = log_probabilities.shape[0], log_probabilities.shape[1]
    states = 2 * (targets.shape[-1]) + 1
    return Price(flops=15 * steps * batch * states)

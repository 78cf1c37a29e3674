"""Optimiser steps: pointwise work over parameters, gradients and states, all lists together."""

from collections.abc import Mapping

from torchstone.cost.arguments import flag, optional_tensor, tensors, value_of
from torchstone.cost.prices.pointwise import FLOPS_PER_ELEMENT
from torchstone.cost.registry import Price, price_of
from torchstone.cost.traffic import bytes_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.value import tensors_in

_FOREACH = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min", "cos", "cosh", "div",
    "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "maximum",
    "minimum", "mul", "neg", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub",
    "tan", "tanh", "trunc",
)  # fmt: skip
_FUSED: Mapping[str, tuple[int, tuple[str, ...]]] = {
    # FLOPs per parameter of a step without extras, and the lists that are written
    "_fused_sgd_": (2, ("self", "momentum_buffer_list")),  # scale, subtract
    "_fused_adam_": (13, ("self", "exp_avgs", "exp_avg_sqs")),  # moments (3, 4), root, correct, add; scale, divide, add
    "_fused_adamw_": (13, ("self", "exp_avgs", "exp_avg_sqs")),
    "_fused_adagrad_": (7, ("self", "state_sums")),  # square, add; root, add; scale, divide, add
}


@price_of(*(f"aten._foreach_{name}" for name in _FOREACH), kind=Kind.OPTIMISER)
def foreach(call: OpSignature) -> Price:
    """The function's price, times the elements of the lists' results; in place the list itself is written."""
    name = call.op.split(".")[1].removeprefix("_foreach_").removesuffix("_")
    changed = call.output_specs or tensors(call, "self")
    scaled = value_of(call, "alpha") not in (None, 1)
    flops = (FLOPS_PER_ELEMENT[name] + scaled) * sum(spec.elements for spec in changed)
    return Price(flops=flops, writes=tuple(bytes_of(spec) for spec in changed))


@price_of("aten._amp_foreach_non_finite_check_and_unscale", kind=Kind.OPTIMISER)
def unscale(call: OpSignature) -> Price:
    """Each gradient is checked and scaled, in place."""
    gradients = tensors(call, "self")
    flops = 2 * sum(spec.elements for spec in gradients)
    return Price(flops=flops, writes=tuple(bytes_of(spec) for spec in gradients))


@price_of("aten._foreach_zero", "aten._foreach_zero_", kind=Kind.OPTIMISER)
def foreach_zero(call: OpSignature) -> Price:
    """Written, not read."""
    return Price(reads=(0,) * len(call.input_specs), writes=tuple(bytes_of(spec) for spec in tensors(call, "self")))


@price_of(*(f"aten.{name}" for name in _FUSED), kind=Kind.OPTIMISER)
def fused(call: OpSignature) -> Price:
    """Moments, bias correction, root, division and update for each parameter; extras where they are switched on."""
    per_parameter, written = _FUSED[call.op.split(".")[1]]
    parameters = sum(spec.elements for spec in tensors(call, "self"))
    lists = (*written, *(("max_exp_avg_sqs",) if flag(call, "amsgrad") else ()))
    writes = [
        bytes_of(spec) for argument in call.arguments if argument.name in lists for spec in tensors_in(argument.value)
    ]
    return Price(flops=(per_parameter + _extras(call)) * parameters, writes=tuple(writes))


def _extras(call: OpSignature) -> int:
    """Decay scales and adds (AdamW: scales), momentum and Nesterov scale and add; then one comparison, one scale."""
    decay = (1 if "adamw" in call.op else 2) if value_of(call, "weight_decay") else 0
    momentum = 2 * (bool(value_of(call, "momentum")) + flag(call, "nesterov"))
    return decay + momentum + flag(call, "amsgrad") + (optional_tensor(call, "grad_scale") is not None)

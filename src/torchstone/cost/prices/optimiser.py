"""Optimiser steps: pointwise work over parameters, gradients and states, all lists together."""

from collections.abc import Mapping

from torchstone.cost.arguments import flag, tensors
from torchstone.cost.prices.pointwise import FLOPS_PER_ELEMENT
from torchstone.cost.registry import Price, price_of
from torchstone.cost.traffic import bytes_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.value import tensors_in

_FOREACH = (
    "add", "sub", "mul", "div", "neg", "sqrt", "rsqrt", "reciprocal", "addcmul", "addcdiv", "lerp", "pow", "maximum",
    "minimum", "clamp_min", "clamp_max", "abs", "exp", "log", "sign", "sigmoid", "tanh",
)  # fmt: skip
_FUSED: Mapping[str, tuple[int, tuple[str, ...]]] = {
    # FLOPs per parameter, and the lists that are written
    "_fused_sgd_": (4, ("self", "momentum_buffer_list")),
    "_fused_adam_": (14, ("self", "exp_avgs", "exp_avg_sqs")),
    "_fused_adamw_": (14, ("self", "exp_avgs", "exp_avg_sqs")),
    "_fused_adagrad_": (6, ("self", "state_sums")),
}


@price_of(*(f"aten._foreach_{name}" for name in _FOREACH), kind=Kind.OPTIMISER)
def foreach(call: OpSignature) -> Price:
    """The function's price, times the elements of the first list; in place the list itself is written."""
    name = call.op.split(".")[1].removeprefix("_foreach_")
    first = tensors(call, "self")
    flops = FLOPS_PER_ELEMENT[name.removesuffix("_")] * sum(spec.elements for spec in first)
    if call.output_specs:
        return Price(flops=flops)
    return Price(flops=flops, writes=tuple(bytes_of(spec) for spec in first))


@price_of("aten._foreach_zero", "aten._foreach_zero_", kind=Kind.OPTIMISER)
def foreach_zero(call: OpSignature) -> Price:
    """Written, not read."""
    return Price(reads=(0,) * len(call.input_specs), writes=tuple(bytes_of(spec) for spec in tensors(call, "self")))


@price_of(*(f"aten.{name}" for name in _FUSED), kind=Kind.OPTIMISER)
def fused(call: OpSignature) -> Price:
    """Moments, bias correction, root, division and update for each parameter."""
    per_parameter, written = _FUSED[call.op.split(".")[1]]
    parameters = sum(spec.elements for spec in tensors(call, "self"))
    lists = (*written, *(("max_exp_avg_sqs",) if flag(call, "amsgrad") else ()))
    writes = [
        bytes_of(spec) for argument in call.arguments if argument.name in lists for spec in tensors_in(argument.value)
    ]
    return Price(flops=per_parameter * parameters, writes=tuple(writes))

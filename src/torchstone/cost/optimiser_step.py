"""What an optimiser adds to a training step: states that are held, and a step over all trainable parameters."""

from torchstone.record.cost import OptimiserCost
from torchstone.record.trace import Trace

_STATE_ELEMENT_BYTES = 4  # moments are kept in float32
OPTIMISERS = {  # states per parameter, FLOPs per parameter of one step
    "sgd": (0, 2),  # scale the gradient, subtract
    "momentum": (1, 4),  # decay, add, scale, subtract
    "adam": (2, 13),  # moments (3, 4), root, bias correction, add; scale, divide, subtract
    "adamw": (2, 14),  # and decay
}


def optimiser_cost(trace: Trace, name: str) -> OptimiserCost:
    """Every trainable parameter once, tied ones once."""
    states, flops = OPTIMISERS[name]
    trainable = {parameter.tensor for module in trace.modules for parameter in module.parameters if parameter.trainable}
    specs = [trace.tensors[tensor].spec for tensor in sorted(trainable)]
    parameters = sum(spec.elements for spec in specs)
    held = sum(spec.size_bytes or 0 for spec in specs)
    state = states * parameters * _STATE_ELEMENT_BYTES
    return OptimiserCost(
        name=name,
        parameters=parameters,
        state_bytes=state,
        gradient_bytes=held,
        flops=flops * parameters,
        bytes_read=2 * held + state,
        bytes_written=held + state,
    )

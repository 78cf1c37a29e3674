"""The step of an optimizer: states that are held, and work over all trainable parameters."""

from torchstone.record.cost import OptimiserCost
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace

_LEAST_STATE_BYTES = 4  # of an element: moments are kept in float32, those of larger elements in their own type
OPTIMISERS = {  # states per parameter, FLOPs per parameter of one step
    "sgd": (0, 2),  # scale the gradient, subtract
    "momentum": (1, 4),  # decay, add, scale, subtract
    "adam": (2, 13),  # moments (3, 4), root, bias correction, add; scale, divide, subtract
    "adamw": (2, 14),  # and decay
}


def optimiser_cost(trace: Trace, name: str) -> OptimiserCost:
    """Every trainable parameter once, tied ones once."""
    states, flops = OPTIMISERS[name]
    specs = [trace.held_spec(tensor) for tensor in _trainable(trace)]
    parameters = sum(spec.elements for spec in specs)
    held = sum(spec.size_bytes or 0 for spec in specs)
    state = states * sum(map(_state_bytes, specs))
    return OptimiserCost(
        name=name,
        parameters=parameters,
        state_bytes=state,
        gradient_bytes=held,
        flops=flops * parameters,
        bytes_read=2 * held + state,
        bytes_written=held + state,
    )


def _state_bytes(spec: TensorSpec) -> int:
    """Bytes of one moment of a parameter."""
    return max(spec.size_bytes or 0, spec.elements * _LEAST_STATE_BYTES)


def _trainable(trace: Trace) -> list[int]:
    return sorted({one.tensor for module in trace.modules for one in module.parameters if one.trainable})


def optimiser_states(trace: Trace, name: str | None) -> dict[int, int]:
    """Bytes of the states of an optimizer by the storage of the parameter; none without an optimizer."""
    each = OPTIMISERS[name][0] if name else 0
    storage_of = trace.tensors.storage_of
    return {storage_of[one]: each * _state_bytes(trace.held_spec(one)) for one in _trainable(trace)} if each else {}

"""A trace and what was asked for -> its costs, for `torchstone cost` and its sweeps."""

from typing import TYPE_CHECKING, Any

from torchstone.cli.model_options import ModelRequest

if TYPE_CHECKING:
    from torchstone.record.cost import Conventions, CostTable
    from torchstone.record.trace import Trace

COUNTS = {"flops": 2, "macs": 1}


def logits_argument(wanted: str | None) -> dict[str, object]:
    """How transformers models are told which logits to compute: 0 stands for all."""
    return {} if wanted is None else {"logits_to_keep": 1 if wanted == "last" else 0}


def costs_of(trace: "Trace", request: ModelRequest, given: dict[str, Any]) -> "CostTable":
    """Price a trace with everything that was asked for beside the prices."""
    import msgspec

    from torchstone.cost import price
    from torchstone.cost.hardware import find_hardware
    from torchstone.cost.optimiser_step import optimiser_cost
    from torchstone.cost.roofline import predict
    from torchstone.cost.tensor_parallel import split_over

    hardware = find_hardware(given["hardware"]) if given["hardware"] else None
    table = price(trace, _conventions(request, given))
    prediction = predict(trace, table, hardware) if hardware else None
    return msgspec.structs.replace(
        table,
        prediction=prediction,
        tensor_parallel=split_over(trace, table, given["devices"], prediction) if given["devices"] else None,
        optimiser=optimiser_cost(trace, given["optimizer"]) if given["optimizer"] else None,
    )


def _conventions(request: ModelRequest, given: dict[str, Any]) -> "Conventions":
    from torchstone.record.cost import Causal, Conventions

    return Conventions(
        multiply_add=COUNTS[given["count"]],
        causal=Causal(given["causal"]),
        cache_len=request.options.cache_len,
        logits=given["logits"] or "as captured",
    )

"""A trace and what was asked for -> its costs, for `torchstone cost` and its sweeps."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.model_options import ModelRequest
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError

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
    if given["optimizer"] and trace.ops.forward_calls == len(trace.ops) and trace.failure is None:
        msg = "--optimizer is the end of a training step, and no backward pass was recorded; add --backward"
        raise InputError(msg)
    table = price(trace, _conventions(request, given))
    optimiser = optimiser_cost(trace, given["optimizer"]) if given["optimizer"] else None
    states_bytes = optimiser.state_bytes if optimiser else 0
    prediction = predict(trace, table, hardware, states_bytes=states_bytes) if hardware else None
    return msgspec.structs.replace(
        table,
        prediction=prediction,
        tensor_parallel=split_over(trace, table, given["devices"], prediction) if given["devices"] else None,
        optimiser=optimiser,
    )


def _conventions(request: ModelRequest, given: dict[str, Any]) -> "Conventions":
    from torchstone.record.cost import Causal, Conventions

    return Conventions(
        multiply_add=COUNTS[given["count"]],
        causal=Causal(given["causal"]),
        cache_len=request.options.cache_len,
        logits=given["logits"] or "as captured",
    )


def write_csv(path: Path, text: str) -> None:
    """Write what --csv asked for."""
    from torchstone.record.codec import write_atomically

    try:
        write_atomically(path, text.encode())
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}; choose another --csv"
        raise InputError(msg) from error


def exit_code(unpriced: Collection[str], *, failed: bool, strict: bool) -> int:
    """1 when the forward pass failed, and with --strict when an op has no price."""
    if strict and unpriced:
        names = ", ".join(sorted(unpriced))
        click.echo(f"torchstone: --strict: no price for {names}; price them with --prices", err=True)
        return EXIT_FINDINGS
    return EXIT_FINDINGS if failed else EXIT_FINE

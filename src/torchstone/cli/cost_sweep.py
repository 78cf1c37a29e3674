"""torchstone cost --sweep: the same model at several sizes."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.cost_pricing import costs_of, logits_argument
from torchstone.cli.model_options import ModelRequest, requested_trace, saved_trace
from torchstone.cli.options import Session
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError

if TYPE_CHECKING:
    from torchstone.record.cost import CostTable

SCHEMA = "torchstone/cost_sweep/1"


def run_sweep(request: ModelRequest, given: dict[str, Any], session: Session) -> int:
    """Capture and price at each value, and show a line for each."""
    from torchstone.cost.sweeping import parse_sweep

    sweep = parse_sweep(given["sweep"])
    if saved_trace(request.model) is not None:
        msg = f"{request.model} is a finished run of one size; give --sweep the model itself"
        raise InputError(msg)
    points: list[tuple[int, CostTable]] = []
    failed = False
    for value in sweep.values:
        changed: dict[str, Any] = {sweep.parameter: value}
        sized = replace(request, options=replace(request.options, **changed))
        trace = requested_trace(sized, session, logits_argument(given["logits"]))
        failed = failed or trace.failure is not None
        points.append((value, costs_of(trace, sized, given)))
    click.echo(_document(sweep.parameter, points) if given["as_json"] else _text(sweep.parameter, points, session))
    return EXIT_FINDINGS if failed else EXIT_FINE


def _document(parameter: str, points: "list[tuple[int, CostTable]]") -> bytes:
    import msgspec

    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "model": points[0][1].model,
            "parameter": parameter,
            "conventions": points[0][1].conventions,
            "points": [
                {
                    "value": value,
                    "totals": table.totals,
                    "traffic": table.traffic,
                    "unpriced": table.unpriced,
                    "predicted_s": table.prediction.total_s if table.prediction else None,
                    "fits": table.prediction.fits if table.prediction else None,
                }
                for value, table in points
            ],
        }
    )


def _text(parameter: str, points: "list[tuple[int, CostTable]]", session: Session) -> str:
    from torchstone.report.sweep_text import sweep_text
    from torchstone.report.text import coloured, plain

    return sweep_text(parameter, points, coloured if session.uses_color else plain)

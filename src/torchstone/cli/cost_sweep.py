"""torchstone cost --sweep: the same model at several sizes."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.cost_pricing import costs_of, exit_code, logits_argument, write_csv
from torchstone.cli.model_options import ModelRequest, requested_trace, saved_trace
from torchstone.cli.options import Session
from torchstone.cli.result_folder import write_result
from torchstone.errors import InputError

if TYPE_CHECKING:
    from torchstone.record.cost import CostTable
    from torchstone.record.cost_sweep import CostSweep

SWEEP_FILE = "cost_sweep.json"


def run_sweep(request: ModelRequest, given: dict[str, Any], session: Session) -> int:
    """Capture and price at each value, and show a line for each."""
    from torchstone.cost.sweeping import parse_sweep
    from torchstone.record.codec import encode

    sweep = parse_sweep(given["sweep"])
    _refuse_what_needs_one_size(given)
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
    found = _record(sweep.parameter, points)
    click.echo(encode(found) if given["as_json"] else _text(sweep.parameter, points, session))
    if given["csv_file"] is not None:
        from torchstone.report.sweep_text import sweep_csv

        write_csv(given["csv_file"], sweep_csv(sweep.parameter, points))
    if given["folder"] is not None:
        write_result(given["folder"] / SWEEP_FILE, found, session)
    return exit_code({op for _, table in points for op in table.unpriced}, failed=failed, strict=given["strict"])


def _refuse_what_needs_one_size(given: dict[str, Any]) -> None:
    """A sweep has many results, and these options ask about one."""
    names = {"compare_with": "--compare-with", "devices": "--tp"}
    wrong = next((name for key, name in names.items() if given[key] is not None), None)
    wrong = "--by formula" if given["by"] == "formula" else wrong
    if wrong is not None:
        msg = f"{wrong} is about one size, and --sweep runs several; leave one of them out"
        raise InputError(msg)


def _record(parameter: str, points: "list[tuple[int, CostTable]]") -> "CostSweep":
    from torchstone.record.cost_sweep import CostSweep, SweepPoint

    first = points[0][1]
    return CostSweep(
        model=first.model,
        parameter=parameter,
        conventions=first.conventions,
        hardware=first.prediction.hardware.title if first.prediction else "",
        points=tuple(
            SweepPoint(
                value=value,
                totals=table.totals,
                traffic=table.traffic,
                unpriced=table.unpriced,
                predicted_s=table.prediction.total_s if table.prediction else None,
                fits=table.prediction.fits if table.prediction else None,
            )
            for value, table in points
        ),
    )


def _text(parameter: str, points: "list[tuple[int, CostTable]]", session: Session) -> str:
    from torchstone.report.sweep_text import sweep_text
    from torchstone.report.text import coloured, plain

    return sweep_text(parameter, points, coloured if session.uses_color else plain)

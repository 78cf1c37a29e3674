"""torchstone formula solve NAME: the largest value of a parameter that fits."""

from typing import TYPE_CHECKING

import click

from torchstone.cli.formula_options import formula_arguments, load, read_parameters
from torchstone.cli.options import Session, common_options, json_option
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE
from torchstone.units import read_bytes, read_count, show_bytes, show_count

if TYPE_CHECKING:
    from torchstone.formula.expression import Value
    from torchstone.formula.solving import Solution
    from torchstone.formula.view import FormulaView
    from torchstone.record.formula import FormulaEntry, Quantity

SCHEMA = "torchstone/formula_solution/1"
_LIMITS = {"memory": ("weights", "intermediates"), "traffic": ("reads", "writes"), "flops": ("flops",)}


@click.command(short_help="The largest batch, or other parameter, that fits.")
@formula_arguments
@click.option("--for", "parameter", default="B", show_default=True, help="The parameter to find.")
@click.option("--memory", metavar="SIZE", help="Weights and activations held at one time fit in SIZE, such as 80GiB.")
@click.option("--traffic", metavar="SIZE", help="Bytes read and written stay below SIZE.")
@click.option("--flops", metavar="COUNT", help="FLOPs stay below COUNT, such as 2e15 or 2P.")
@json_option
@common_options
@click.pass_obj
def command(
    session: Session, /, *, name: str, given: tuple[str, ...], parameter: str, as_json: bool, **limits: str | None
) -> int:
    """Find the largest value of a parameter of NAME that fits a limit.

    The other parameters are given as PARAMETER=VALUE, or have a default. The exit code is 1 when nothing fits.
    """
    from torchstone.formula.view import FormulaView
    from torchstone.record.formula import Quantity

    kind, limit = _limit(limits)
    quantities = tuple(Quantity(one) for one in _LIMITS[kind])
    formulas = load(session)
    view = FormulaView(formulas, formulas.find(name), read_parameters(given))
    _require_known(view.entry, quantities)
    solution = view.largest(quantities, parameter, limit)
    costs = {} if solution is None else view.values_at(quantities, parameter, solution.value)
    if as_json:
        click.echo(_document(view, parameter, limit, solution, costs))
    else:
        click.echo(_text(kind, parameter, limit, solution, costs))
    if solution is not None and not solution.proven and not session.quiet:
        click.echo(f"torchstone: not shown to grow with {parameter} everywhere: a larger one may fit too", err=True)
    return EXIT_FINDINGS if solution is None else EXIT_FINE


def _require_known(entry: "FormulaEntry", quantities: "tuple[Quantity, ...]") -> None:
    from torchstone.errors import FormulaError
    from torchstone.formula.templates import name_of

    unknown = [one for one in quantities if entry.template(one) is None]
    if unknown:
        msg = f"{name_of(entry)} has no formula for {', '.join(unknown)}; ask with --flops, or write one"
        raise FormulaError(msg)


def _limit(limits: dict[str, str | None]) -> tuple[str, int]:
    asked = {kind: text for kind, text in limits.items() if text is not None}
    if len(asked) != 1:
        msg = "give exactly one of --memory, --traffic and --flops"
        raise click.UsageError(msg)
    ((kind, text),) = asked.items()
    limit = read_count(text) if kind == "flops" else read_bytes(text)
    if limit is None:
        example = "2e15 or 2P" if kind == "flops" else "80GiB or 500MB"
        msg = f"--{kind} {text!r} cannot be read; write it as {example}"
        raise click.UsageError(msg)
    return kind, limit


def _text(kind: str, parameter: str, limit: int, solution: "Solution | None", costs: "dict[Quantity, Value]") -> str:
    shown = show_count if kind == "flops" else show_bytes
    if solution is None:
        return f"no {parameter} fits in {shown(limit)}"
    parts = ", ".join(f"{quantity} {shown(int(cost))}" for quantity, cost in costs.items())
    return (
        f"{parameter} = {solution.value} fits in {shown(limit)}: {parts}\n"
        f"{parameter} = {solution.value + 1} would need {shown(int(solution.next_cost))}"
    )


def _document(
    view: "FormulaView",
    parameter: str,
    limit: int,
    solution: "Solution | None",
    costs: "dict[Quantity, Value]",
) -> str:
    import json

    document = {
        "schema": SCHEMA,
        "module_path": view.entry.module_path,
        "parameter": parameter,
        "limit": limit,
        "value": None if solution is None else solution.value,
        "proven": None if solution is None else solution.proven,
        "costs": {str(quantity): int(cost) if cost == int(cost) else str(cost) for quantity, cost in costs.items()},
    }
    return json.dumps(document, indent=1)

"""torchstone formula eval NAME: the numbers at one setting of the parameters."""

from typing import TYPE_CHECKING

import click

from torchstone.cli.formula_options import formula_arguments, load, quantities_option, read_values
from torchstone.cli.options import Session, common_options, json_option

if TYPE_CHECKING:
    from torchstone.formula.database import Formulas
    from torchstone.formula.expression import Value
    from torchstone.record.formula import Quantity

SCHEMA = "torchstone/formula_value/1"


@click.command(short_help="The numbers at one setting of the parameters.")
@formula_arguments
@quantities_option
@click.option("--explain", is_flag=True, help="Show how the numbers come about, module by module.")
@json_option
@common_options
@click.pass_obj
def command(
    session: Session,
    /,
    *,
    name: str,
    given: tuple[str, ...],
    quantities: tuple[str, ...],
    explain: bool,
    as_json: bool,
) -> None:
    """Compute FLOPs and bytes of NAME at one setting of its parameters.

    A value is a number or arithmetic, such as S=4*1024. Parameters with a default may be left out; `torchstone formula
    show NAME` lists them.
    """
    from torchstone.errors import FormulaError
    from torchstone.formula.computing import compute
    from torchstone.formula.consistency import known_quantities
    from torchstone.record.formula import Quantity

    formulas = load(session)
    entry = formulas.find(name)
    known = known_quantities(entry)
    asked = [Quantity(one) for one in quantities] or known
    unknown = [one for one in asked if one not in known]
    if unknown:
        msg = f"{entry.module_path} has no formula for {', '.join(unknown)}"
        raise FormulaError(msg)
    values = read_values(given)
    results = {one: compute(formulas, name, one, values) for one in asked}
    if as_json:
        click.echo(_document(entry.module_path, values, results))
    elif explain:
        click.echo("\n\n".join(_explained(formulas, name, one, values) for one in asked))
    else:
        click.echo(_table(results))
    if not session.quiet and entry.validation.status != "validated":
        click.echo(f"torchstone: the status of this formula is {entry.validation.status}", err=True)


def _document(path: str, values: "dict[str, Value]", results: "dict[Quantity, Value]") -> str:
    import json

    numbers = {name: _number(value) for name, value in values.items()}
    found = {str(quantity): _number(value) for quantity, value in results.items()}
    return json.dumps({"schema": SCHEMA, "module_path": path, "parameters": numbers, **found}, indent=1)


def _number(value: "Value") -> int | str:
    return value if isinstance(value, int) else str(value)


def _explained(formulas: "Formulas", name: str, quantity: "Quantity", values: "dict[str, Value]") -> str:
    from torchstone.formula.explaining import explanation

    return f"{quantity}\n{explanation(formulas, name, quantity, values)}"


def _table(results: "dict[Quantity, Value]") -> str:
    from torchstone.formula.explaining import shown
    from torchstone.record.formula import Quantity
    from torchstone.report.text import aligned
    from torchstone.units import show_bytes, show_count

    rows = []
    for quantity, value in results.items():
        short = show_count if quantity is Quantity.FLOPS else show_bytes
        rows.append((str(quantity), shown(value), f"({short(value)})" if isinstance(value, int) else ""))
    return aligned(rows, right=(1,), header=False)

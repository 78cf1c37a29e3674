"""torchstone formula show NAME: a formula, its domain and its evidence."""

from typing import TYPE_CHECKING

import click

from torchstone.cli.formula_options import formula_arguments, load, quantities_option, read_parameters
from torchstone.cli.options import Session, common_options, json_option

if TYPE_CHECKING:
    from torchstone.formula.expression import Expression
    from torchstone.formula.view import FormulaView
    from torchstone.record.formula import FormulaEntry, Quantity
    from torchstone.report.text import Paint

SCHEMA = "torchstone/formula/1"


@click.command(short_help="A formula, its domain and its evidence.")
@formula_arguments
@quantities_option
@click.option("--expand", "form", flag_value="expanded", help="Without calls of other modules, multiplied out.")
@click.option("--factor", "form", flag_value="factored", help="Without calls of other modules, as a product.")
@click.option("--latex", is_flag=True, help="Print the formulas as LaTeX.")
@click.option("--growth", is_flag=True, help="How each quantity grows with each parameter.")
@click.option("--dominant", metavar="PARAMETER", help="Which part is the largest from which value of PARAMETER on.")
@json_option
@common_options
@click.pass_obj
def command(
    session: Session, /, *, name: str, given: tuple[str, ...], quantities: tuple[str, ...], **how: str | bool | None
) -> None:
    """Show the formulas of NAME, under which conditions they hold, and why they are trusted.

    Parameters given as PARAMETER=VALUE are put into the formulas, the others stay.
    """
    from torchstone.formula.consistency import known_quantities
    from torchstone.formula.view import Form, FormulaView
    from torchstone.record.formula import Quantity

    formulas = load(session)
    entry = formulas.find(name)
    asked = [Quantity(one) for one in quantities] or known_quantities(entry)
    view = FormulaView(formulas, entry, read_parameters(given))
    if how["growth"]:
        click.echo(_growth(session, view, asked))
        return
    if how["dominant"]:
        click.echo(_dominant(session, view, asked, str(how["dominant"])))
        return
    form = Form(str(how["form"] or "written"))
    trees = {one: view.formula(one, form) for one in asked}
    if how["as_json"]:
        click.echo(_document(entry, trees))
    elif how["latex"]:
        click.echo("\n".join(_latex(one, tree) for one, tree in trees.items()))
    else:
        click.echo(_text(session, entry, trees))


def _document(entry: "FormulaEntry", trees: "dict[Quantity, Expression]") -> str:
    import json

    import msgspec

    from torchstone.formula.printing import show

    unknown = dict.fromkeys(("flops", "reads", "writes"))
    found = {str(quantity): show(tree) for quantity, tree in trees.items()}
    record = msgspec.to_builtins(entry)
    document = {"schema": SCHEMA, "entry": record, **unknown, **found, "evidence": record["evidence"]}
    return json.dumps(document, indent=1)


def _latex(quantity: "Quantity", tree: "Expression") -> str:
    from torchstone.formula.latex import latex

    return rf"\mathrm{{{quantity}}} = {latex(tree)}"


def _text(session: Session, entry: "FormulaEntry", trees: "dict[Quantity, Expression]") -> str:
    from torchstone.report.formula_text import entry_text

    return entry_text(entry, trees, _paint(session))


def _growth(session: Session, view: "FormulaView", asked: "list[Quantity]") -> str:
    from torchstone.report.formula_text import growth_text

    return "\n\n".join(growth_text(one, view.growth(one), _paint(session)) for one in asked)


def _dominant(session: Session, view: "FormulaView", asked: "list[Quantity]", name: str) -> str:
    from torchstone.report.formula_text import reigns_text

    found = []
    for one in asked:
        found.append(reigns_text(one, name, view.reigns_of_terms(one, name), _paint(session)))
        found.append(reigns_text(one, name, view.reigns_of_powers(one, name), _paint(session)))
    return "\n\n".join(found)


def _paint(session: Session) -> "Paint":
    from torchstone.report.text import coloured, plain

    return coloured if session.uses_color else plain

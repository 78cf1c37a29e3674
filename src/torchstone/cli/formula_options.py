"""What the formula commands share: parameters on the command line, and the formulas at hand."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchstone.cli.options import Session

if TYPE_CHECKING:
    from torchstone.formula.database import Formulas
    from torchstone.formula.expression import Expression, Value

F = TypeVar("F", bound=Callable[..., Any])

quantities_option = click.option(
    "--of",
    "quantities",
    multiple=True,
    type=click.Choice(["flops", "reads", "writes", "intermediates", "weights"]),
    help="Only this quantity; may be given several times.",
)


def formula_arguments(function: F) -> F:
    """Add NAME and any number of PARAMETER=VALUE."""
    given = click.argument("given", nargs=-1, metavar="[PARAMETER=VALUE]...")
    return click.argument("name")(given(function))


def load(_session: Session) -> "Formulas":
    """The formulas at hand; what is wrong with a file of them is said on stderr, in quiet sessions too."""
    from torchstone.formula.computing import formulas_at_hand

    formulas = formulas_at_hand()
    for problem in formulas.problems:
        click.echo(f"torchstone: warning: {problem}", err=True)
    return formulas


def read_parameters(given: Sequence[str]) -> "dict[str, Expression]":
    """PARAMETER=VALUE, where a value is a number or an expression of other parameters."""
    from torchstone.errors import FormulaError
    from torchstone.formula.parsing import parse

    found: dict[str, Expression] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not name.strip():
            msg = f"{one!r} is not of the form PARAMETER=VALUE, such as B=8"
            raise click.UsageError(msg)
        if name.strip() in found:
            msg = f"{name.strip()} is given twice"
            raise click.UsageError(msg)
        try:
            found[name.strip()] = parse(text)
        except FormulaError as error:
            msg = f"the value of {name.strip()} cannot be read: {error}"
            raise click.UsageError(msg) from error
    return found


def read_values(given: Sequence[str]) -> "dict[str, Value]":
    """PARAMETER=VALUE, where a value is a number or arithmetic such as 4*1024."""
    from torchstone.formula.evaluating import evaluate
    from torchstone.formula.expression import free_parameters

    trees = read_parameters(given)
    for name, tree in trees.items():
        if free_parameters(tree):
            msg = f"the value of {name} depends on {', '.join(free_parameters(tree))}; give a number"
            raise click.UsageError(msg)
    return {name: evaluate(tree, {}) for name, tree in trees.items()}

"""Arguments of a call -> the parameters of the entry that is called."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from torchstone.errors import FormulaError, UnknownFormulaError
from torchstone.formula.database import Formulas
from torchstone.formula.evaluating import evaluate
from torchstone.formula.expression import Value, free_parameters
from torchstone.formula.names import short_name, split_variant, with_variant
from torchstone.formula.templates import default_of, name_of
from torchstone.record.formula import FormulaEntry, Quantity

T = TypeVar("T")


def called_entry(formulas: Formulas, caller: FormulaEntry, quantity: Quantity, module: str) -> FormulaEntry:
    """The entry that a template means by {module}: one of its dependencies by its last name, or any by its path."""
    path, variant = split_variant(module)
    depends = caller.depends(quantity)
    meant = [one for one in depends if path in (one, short_name(split_variant(one)[0])) or module == one]
    if len(meant) == 1:
        base, own_variant = split_variant(meant[0])
        return formulas.find(with_variant(base, variant or own_variant))
    if len(meant) > 1:
        msg = f"{module} may be any of {', '.join(meant)}; write the whole path"
        raise UnknownFormulaError(msg)
    return formulas.find(module)


def bind(entry: FormulaEntry, quantity: Quantity, arguments: Sequence[T], named: Mapping[str, T]) -> dict[str, T]:
    """The given arguments by parameter; too many, too few, unknown or doubled ones are refused."""
    parameters = entry.parameters(quantity)
    if len(arguments) > len(parameters):
        msg = f"{_signature(entry, quantity)} takes {len(parameters)} arguments, not {len(arguments)}"
        raise FormulaError(msg)
    bound = dict(zip(parameters, arguments, strict=False))
    for name, value in named.items():
        if name not in parameters:
            msg = f"{_signature(entry, quantity)} has no parameter {name}"
            raise FormulaError(msg)
        if name in bound:
            msg = f"{_signature(entry, quantity)} is given {name} twice"
            raise FormulaError(msg)
        bound[name] = value
    missing = [name for name in parameters if name not in bound and name not in entry.defaults]
    if missing:
        msg = f"{_signature(entry, quantity)} misses {', '.join(missing)}"
        raise FormulaError(msg)
    return bound


def complete(entry: FormulaEntry, quantity: Quantity, given: Mapping[str, Value]) -> dict[str, Value]:
    """All parameters of a quantity with their values, in their order: the given ones, and the others by default."""
    values = dict(given)
    for name in entry.parameters(quantity):
        _settle(entry, name, values)
    return {name: values[name] for name in entry.parameters(quantity)}


def _settle(entry: FormulaEntry, name: str, values: dict[str, Value]) -> None:
    if name in values:
        return
    default = default_of(entry, name)
    if default is None:
        msg = f"{name_of(entry)} needs a value for {name}"
        raise FormulaError(msg)
    for other in free_parameters(default):  # no circles: `consistency` has looked
        _settle(entry, other, values)
    values[name] = evaluate(default, values)


def _signature(entry: FormulaEntry, quantity: Quantity) -> str:
    return f"{name_of(entry)}({', '.join(entry.parameters(quantity))})"

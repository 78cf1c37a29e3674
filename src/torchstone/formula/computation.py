"""One quantity of an entry at given arguments, through all the modules nested in it."""

from collections.abc import Mapping
from fractions import Fraction
from operator import index

from torchstone.errors import FormulaError
from torchstone.formula.binding import bind, called_entry, complete
from torchstone.formula.database import Formulas
from torchstone.formula.evaluating import Budget, evaluate
from torchstone.formula.expression import Call, Expression, Value, free_parameters
from torchstone.formula.names import key_of
from torchstone.formula.printing import show
from torchstone.formula.templates import domain_of, name_of, template_of
from torchstone.record.formula import FormulaEntry, Quantity


def given_values(entry: FormulaEntry, quantity: Quantity, parameters: Mapping[str, Value]) -> dict[str, Value]:
    """What the user gave, as exact numbers, for the parameters that this quantity has; others are refused."""
    unknown = [name for name in parameters if name not in entry.all_parameters]
    if unknown:
        msg = f"{name_of(entry)} has no parameter {', '.join(unknown)}; it has {', '.join(entry.all_parameters)}"
        raise FormulaError(msg)
    values = {name: _exact(name, value) for name, value in parameters.items() if name in entry.parameters(quantity)}
    return bind(entry, quantity, (), values)


def _exact(name: str, value: Value) -> Value:
    try:
        number = value if isinstance(value, Fraction) else index(value)
    except TypeError as error:
        msg = f"the value of {name} is {value!r}, which is no exact number; give an int or a Fraction"
        raise FormulaError(msg) from error
    if number < 0:
        msg = f"the value of {name} is {number}; sizes and counts are not negative"
        raise FormulaError(msg)
    return number


class Computation:
    """One quantity over any number of nested modules; equal calls are computed once."""

    def __init__(self, formulas: Formulas, quantity: Quantity) -> None:
        self.formulas = formulas
        self.quantity = quantity
        self._budget = Budget()
        self._known: dict[tuple[str, tuple[Value, ...]], Value] = {}

    def of_entry(self, entry: FormulaEntry, given: Mapping[str, Value]) -> Value:
        """The value of an entry's template at the given arguments."""
        values = self.settled(entry, given)
        key = (key_of(entry.module_path, entry.variant), tuple(values.values()))
        if key not in self._known:
            self._known[key] = self.of_tree(entry, template_of(entry, self.quantity), values)
        return self._known[key]

    def settled(self, entry: FormulaEntry, given: Mapping[str, Value]) -> dict[str, Value]:
        """All parameters with their values; a point outside the entry's domain is refused."""
        values = complete(entry, self.quantity, given)
        for condition in domain_of(entry):
            needed = free_parameters(condition)
            if set(needed) <= values.keys() and evaluate(condition, values, budget=self._budget) == 0:
                point = ", ".join(f"{name}={values[name]}" for name in needed)
                msg = f"{name_of(entry)} holds only where {show(condition, plain=True)}, not at {point}"
                raise FormulaError(msg)
        return values

    def of_tree(self, entry: FormulaEntry, tree: Expression, values: Mapping[str, Value]) -> Value:
        """The value of a piece of an entry's template."""

        def call(node: Call, arguments: tuple[Value, ...], named: dict[str, Value]) -> Value:
            called = called_entry(self.formulas, entry, self.quantity, node.module)
            return self.of_entry(called, bind(called, self.quantity, arguments, named))

        return evaluate(tree, values, call=call, budget=self._budget)

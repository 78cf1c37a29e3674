"""A module class and its parameters -> FLOPs and bytes, by nesting: `compute_flops`, `compute_memory`."""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from operator import index
from pathlib import Path
from typing import Literal, TypedDict, overload

from torchstone.errors import FormulaError
from torchstone.formula.binding import bind, called_entry, complete
from torchstone.formula.consistency import require_sound
from torchstone.formula.database import DATABASE_FILE, Formulas, home_folder, load_formulas
from torchstone.formula.evaluating import Budget, evaluate
from torchstone.formula.expression import Call, Expression, Value, free_parameters
from torchstone.formula.names import key_of
from torchstone.formula.printing import show
from torchstone.formula.templates import domain_of, name_of, template_of
from torchstone.record.formula import FormulaEntry, Quantity


class MemoryBytes(TypedDict):
    """The bytes of one call; None where an entry has no formula for it."""

    reads: Value
    writes: Value
    intermediates: Value | None
    weights: Value | None


@overload
def compute_flops(
    name: str, /, *, explain: Literal[False] = ..., formulas: Formulas | None = ..., **parameters: Value
) -> Value: ...
@overload
def compute_flops(
    name: str, /, *, explain: Literal[True], formulas: Formulas | None = ..., **parameters: Value
) -> str: ...
def compute_flops(
    name: str, /, *, explain: bool = False, formulas: Formulas | None = None, **parameters: Value
) -> Value | str:
    """The FLOPs of one call of a module class, or with explain=True the tree of how they come about."""
    known = formulas or formulas_at_hand()
    if explain:
        from torchstone.formula.explaining import explanation

        return explanation(known, name, Quantity.FLOPS, parameters)
    return compute(known, name, Quantity.FLOPS, parameters)


@overload
def compute_memory(
    name: str, /, *, explain: Literal[False] = ..., formulas: Formulas | None = ..., **parameters: Value
) -> MemoryBytes: ...
@overload
def compute_memory(
    name: str, /, *, explain: Literal[True], formulas: Formulas | None = ..., **parameters: Value
) -> str: ...
def compute_memory(
    name: str, /, *, explain: bool = False, formulas: Formulas | None = None, **parameters: Value
) -> MemoryBytes | str:
    """The bytes that one call of a module class reads, writes and holds, or the trees of how they come about."""
    known = formulas or formulas_at_hand()
    entry = known.find(name)
    if explain:
        from torchstone.formula.explaining import explanation

        asked = [quantity for quantity in Quantity if quantity is not Quantity.FLOPS and entry.template(quantity)]
        return "\n\n".join(f"{one}\n{explanation(known, name, one, parameters)}" for one in asked)
    return MemoryBytes(
        reads=compute(known, name, Quantity.READS, parameters),
        writes=compute(known, name, Quantity.WRITES, parameters),
        intermediates=_if_known(known, entry, name, Quantity.INTERMEDIATES, parameters),
        weights=_if_known(known, entry, name, Quantity.WEIGHTS, parameters),
    )


def _if_known(
    formulas: Formulas, entry: FormulaEntry, name: str, quantity: Quantity, parameters: Mapping[str, Value]
) -> Value | None:
    return None if entry.template(quantity) is None else compute(formulas, name, quantity, parameters)


def compute(formulas: Formulas, name: str, quantity: Quantity, parameters: Mapping[str, Value]) -> Value:
    """One quantity of a module class; everything it reaches is checked before anything is computed."""
    entry = formulas.find(name)
    require_sound(formulas, entry, quantity)
    return Computation(formulas, quantity).of_entry(entry, given_values(entry, quantity, parameters))


def formulas_at_hand() -> Formulas:
    """The shipped formulas and the user's own, read again only when the user's file has changed."""
    path = home_folder() / DATABASE_FILE
    try:
        seen = path.stat()
    except OSError:
        return _load(path.parent, 0, 0)
    return _load(path.parent, seen.st_mtime_ns, seen.st_size)


@lru_cache(maxsize=4)
def _load(home: Path, _changed_ns: int, _size_bytes: int) -> Formulas:
    return load_formulas(home)


def given_values(entry: FormulaEntry, quantity: Quantity, parameters: Mapping[str, Value]) -> dict[str, Value]:
    """What the user gave, as exact numbers, for the parameters that this quantity has; others are refused."""
    unknown = [name for name in parameters if name not in entry.all_parameters]
    if unknown:
        msg = f"{name_of(entry)} has no parameter {', '.join(unknown)}; it has {', '.join(entry.all_parameters)}"
        raise FormulaError(msg)
    values = {name: _exact(name, value) for name, value in parameters.items() if name in entry.parameters(quantity)}
    return bind(entry, quantity, (), values)


def _exact(name: str, value: Value) -> Value:
    if isinstance(value, Fraction):
        return value
    try:
        return index(value)
    except TypeError as error:
        msg = f"the value of {name} is {value!r}, which is no exact number; give an int or a Fraction"
        raise FormulaError(msg) from error


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

"""Nested calls replaced by the formulas they stand for, until only parameters are left."""

from collections.abc import Mapping

from torchstone.errors import FormulaError
from torchstone.formula.binding import bind, called_entry
from torchstone.formula.consistency import require_sound
from torchstone.formula.database import Formulas
from torchstone.formula.expression import (
    Call,
    Expression,
    Number,
    Parameter,
    Value,
    depth_of,
    free_parameters,
    rewrite,
    substitute,
    walk,
)
from torchstone.formula.names import key_of
from torchstone.formula.parsing import MAX_DEPTH
from torchstone.formula.templates import default_of, name_of, template_of
from torchstone.record.formula import FormulaEntry, Quantity

MAX_NODES = 20_000


def inlined(
    formulas: Formulas, entry: FormulaEntry, quantity: Quantity, given: Mapping[str, Expression | Value] | None = None
) -> Expression:
    """An entry's formula without calls; parameters that are given are replaced, the others stay as they are."""
    require_sound(formulas, entry, quantity)
    trees = {name: _tree(value) for name, value in (given or {}).items()}
    unknown = [name for name in trees if name not in entry.all_parameters]
    if unknown:
        msg = f"{name_of(entry)} has no parameter {', '.join(unknown)}; it has {', '.join(entry.all_parameters)}"
        raise FormulaError(msg)
    own = {name: Parameter(name) for name in entry.parameters(quantity)}
    return _Inlining(formulas, quantity).body(entry, {**own, **trees})


def inlined_term(formulas: Formulas, entry: FormulaEntry, quantity: Quantity, term: Expression) -> Expression:
    """A piece of an entry's template without calls."""
    require_sound(formulas, entry, quantity)
    own = {name: Parameter(name) for name in entry.all_parameters}
    return _Inlining(formulas, quantity).piece(entry, term, own)


def with_defaults(entry: FormulaEntry, quantity: Quantity, given: Mapping[str, Expression]) -> dict[str, Expression]:
    """The given arguments, and for the other parameters their defaults in terms of the given ones."""
    settled = dict(given)
    waiting = [name for name in entry.parameters(quantity) if name not in settled]
    while waiting:
        ready = [name for name in waiting if _default_needs(entry, name) <= settled.keys()]
        if not ready:
            msg = f"{name_of(entry)} needs values for {', '.join(waiting)}"
            raise FormulaError(msg)
        for name in ready:
            default = default_of(entry, name)
            settled[name] = Parameter(name) if default is None else substitute(default, settled)
        waiting = [name for name in waiting if name not in settled]
    return {name: settled[name] for name in entry.parameters(quantity)}


def _default_needs(entry: FormulaEntry, name: str) -> set[str]:
    default = default_of(entry, name)
    return {name} if default is None else set(free_parameters(default))


def _tree(value: Expression | Value) -> Expression:
    return Number(value) if isinstance(value, Value) else value


class _Inlining:
    """One formula; equal calls are replaced by the same tree."""

    def __init__(self, formulas: Formulas, quantity: Quantity) -> None:
        self._formulas = formulas
        self._quantity = quantity
        self._known: dict[tuple[str, tuple[Expression, ...]], Expression] = {}

    def body(self, entry: FormulaEntry, arguments: Mapping[str, Expression]) -> Expression:
        """An entry's template over these arguments."""
        key = (key_of(entry.module_path, entry.variant), tuple(arguments.values()))
        if key not in self._known:
            self._known[key] = self.piece(entry, template_of(entry, self._quantity), arguments)
        return self._known[key]

    def piece(self, entry: FormulaEntry, tree: Expression, arguments: Mapping[str, Expression]) -> Expression:
        """A piece of an entry's template over these arguments."""

        def change(node: Expression) -> Expression:
            if isinstance(node, Parameter):
                return arguments[node.name]
            if not isinstance(node, Call):
                return node
            called = called_entry(self._formulas, entry, self._quantity, node.module)
            bound = bind(called, self._quantity, node.arguments, dict(node.named))
            return self.body(called, with_defaults(called, self._quantity, bound))

        return _limited(entry, rewrite(tree, change))


def _limited(entry: FormulaEntry, tree: Expression) -> Expression:
    for count, _ in enumerate(walk(tree), start=1):
        if count > MAX_NODES:
            msg = f"written out, {name_of(entry)} has more than {MAX_NODES} parts"
            raise FormulaError(msg)
    if depth_of(tree) > MAX_DEPTH:
        msg = f"written out, {name_of(entry)} is nested more than {MAX_DEPTH} deep"
        raise FormulaError(msg)
    return tree

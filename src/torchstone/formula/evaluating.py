"""Expression + values -> one exact number, within limits of steps and depth."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torchstone.errors import FormulaError
from torchstone.formula.arithmetic import FUNCTIONS, OPERATIONS, RELATIONS, bounded
from torchstone.formula.expression import (
    Binary,
    Call,
    Choose,
    Compare,
    Connective,
    Expression,
    Function,
    Logical,
    Negate,
    Not,
    Number,
    Parameter,
    Product,
    Sum,
    Value,
    exact,
)

MAX_STEPS = 200_000
MAX_NESTING = 200  # of operations, through all nested modules

Caller = Callable[[Call, tuple[Value, ...], dict[str, Value]], Value]


@dataclass(slots=True)
class Budget:
    """How much one evaluation may still do; nested modules spend from the same budget."""

    steps: int = MAX_STEPS
    nesting: int = MAX_NESTING

    def enter(self) -> None:
        """Spend one step, one level down."""
        self.steps -= 1
        self.nesting -= 1
        if self.steps < 0:
            msg = f"the formula takes more than {MAX_STEPS} steps"
            raise FormulaError(msg)
        if self.nesting < 0:
            msg = f"the formula is nested more than {MAX_NESTING} deep"
            raise FormulaError(msg)

    def leave(self) -> None:
        """Come back one level."""
        self.nesting += 1


def evaluate(
    root: Expression, values: Mapping[str, Value], *, call: Caller | None = None, budget: Budget | None = None
) -> Value:
    """The value of a tree; `call` computes nested modules, and without it a call is an error."""
    return _Evaluation(values, call or _no_calls, budget or Budget()).value(root)


def _no_calls(node: Call, _arguments: tuple[Value, ...], _named: dict[str, Value]) -> Value:
    msg = f"{node.module} is called, but this expression may not call modules"
    raise FormulaError(msg)


class _Evaluation:
    def __init__(self, values: Mapping[str, Value], call: Caller, budget: Budget) -> None:
        self._values = values
        self._call = call
        self._budget = budget

    def value(self, node: Expression) -> Value:
        """The value of one node."""
        self._budget.enter()
        result = _RULES[type(node)](self, node)
        self._budget.leave()
        return result

    def number(self, node: Number) -> Value:
        return node.value

    def parameter(self, node: Parameter) -> Value:
        value = self._values.get(node.name)
        if value is None:
            msg = f"the parameter {node.name} has no value"
            raise FormulaError(msg)
        return exact(value)

    def call(self, node: Call) -> Value:
        arguments = tuple(self.value(argument) for argument in node.arguments)
        return self._call(node, arguments, {name: self.value(value) for name, value in node.named})

    def negate(self, node: Negate) -> Value:
        return -self.value(node.operand)

    def sum(self, node: Sum) -> Value:
        total: Value = 0
        for term in node.terms:
            total = bounded(total + self.value(term))
        return total

    def product(self, node: Product) -> Value:
        total: Value = 1
        for factor in node.factors:
            total = bounded(total * self.value(factor))
        return total

    def binary(self, node: Binary) -> Value:
        left = self.value(node.left)
        return OPERATIONS[node.operator](left, self.value(node.right))

    def function(self, node: Function) -> Value:
        return FUNCTIONS[node.name](*(self.value(argument) for argument in node.arguments))

    def compare(self, node: Compare) -> Value:
        left = self.value(node.left)
        return int(RELATIONS[node.relation](left, self.value(node.right)))

    def logical(self, node: Logical) -> Value:
        decisive = node.connective is Connective.OR
        decided = any((self.value(condition) != 0) is decisive for condition in node.conditions)
        return int(decided is decisive)

    def negation(self, node: Not) -> Value:
        return int(self.value(node.condition) == 0)

    def choose(self, node: Choose) -> Value:
        return self.value(node.otherwise if self.value(node.condition) == 0 else node.chosen)


_RULES: dict[type[Expression], Callable[[_Evaluation, Any], Value]] = {
    Number: _Evaluation.number,
    Parameter: _Evaluation.parameter,
    Call: _Evaluation.call,
    Negate: _Evaluation.negate,
    Sum: _Evaluation.sum,
    Product: _Evaluation.product,
    Binary: _Evaluation.binary,
    Function: _Evaluation.function,
    Compare: _Evaluation.compare,
    Logical: _Evaluation.logical,
    Not: _Evaluation.negation,
    Choose: _Evaluation.choose,
}

"""Expression + values -> one exact number, in arithmetic that cannot grow without bound."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from math import log2 as nearest_log2
from typing import Any

from torchstone.errors import FormulaError, ZeroDivisorError
from torchstone.formula.language.expression import (
    Binary,
    Call,
    Choose,
    Compare,
    Connective,
    Expression,
    Function,
    FunctionName,
    Logical,
    Negate,
    Not,
    Number,
    Operator,
    Parameter,
    Product,
    Relation,
    Sum,
    Value,
    exact,
)

# --- Exact arithmetic, with limits on the size of numbers: entries may come from a stranger ---


MAX_BITS = 4096  # of a numerator or denominator


def bounded(value: Value) -> Value:
    """The number as it is, or an error where it has grown too large to be a cost."""
    if isinstance(value, int):
        size = value.bit_length()
    else:
        value = exact(value)
        size = max(value.numerator.bit_length(), value.denominator.bit_length())
    if size > MAX_BITS:
        msg = f"a value needs {size} bits, more than a formula may use ({MAX_BITS})"
        raise FormulaError(msg)
    return value


def divide(left: Value, right: Value) -> Value:
    """The exact quotient."""
    _refuse_zero(right, "/")
    return bounded(Fraction(left) / right)


def floor_divide(left: Value, right: Value) -> Value:
    """The quotient rounded down."""
    _refuse_zero(right, "//")
    return left // right


def modulo(left: Value, right: Value) -> Value:
    """The remainder of the division rounded down; it has the sign of the divisor."""
    _refuse_zero(right, "%")
    return bounded(left % right)


def power(base: Value, exponent: Value) -> Value:
    """A whole power; its size is known, and refused, before it is computed."""
    if not isinstance(exponent, int):
        msg = f"the exponent {exponent} of ** is not a whole number"
        raise FormulaError(msg)
    if exponent < 0:
        _refuse_zero(base, "**")
    size = max(abs(base.numerator).bit_length(), base.denominator.bit_length())
    if abs(base) not in (0, 1) and (size - 1) * abs(exponent) > MAX_BITS:
        msg = f"a power with the exponent {_short(exponent)} needs more than {MAX_BITS} bits"
        raise FormulaError(msg)
    if abs(base) in (0, 1):
        exponent = exponent if exponent == 0 else 2 - exponent % 2  # by sign alone, however large
    return bounded(Fraction(base) ** exponent)


def ceil_log2(number: Value) -> int:
    """The smallest n with 2**n >= number; 0 for numbers up to 1."""
    return (ceil(number) - 1).bit_length() if number > 1 else 0


def log2(number: Value) -> Value:
    """The logarithm in double precision, as an exact number; 0 for numbers up to 1."""
    return exact(Fraction(nearest_log2(number))) if number > 1 else 0


def _short(number: int) -> str:
    return str(number) if abs(number) < 10**20 else f"of {number.bit_length()} bits"


def _refuse_zero(divisor: Value, operator: str) -> None:
    if divisor == 0:
        msg = f"division by zero in {operator}"
        raise ZeroDivisorError(msg)


OPERATIONS: Mapping[Operator, Callable[[Value, Value], Value]] = {
    Operator.DIVIDE: divide,
    Operator.FLOOR_DIVIDE: floor_divide,
    Operator.MODULO: modulo,
    Operator.POWER: power,
}
RELATIONS: Mapping[Relation, Callable[[Value, Value], bool]] = {
    Relation.LESS: lambda left, right: left < right,
    Relation.LESS_EQUAL: lambda left, right: left <= right,
    Relation.GREATER: lambda left, right: left > right,
    Relation.GREATER_EQUAL: lambda left, right: left >= right,
    Relation.EQUAL: lambda left, right: left == right,
    Relation.NOT_EQUAL: lambda left, right: left != right,
}
FUNCTIONS: Mapping[FunctionName, Callable[..., Value]] = {
    FunctionName.MIN: min,
    FunctionName.MAX: max,
    FunctionName.CEIL: ceil,
    FunctionName.FLOOR: floor,
    FunctionName.CEIL_LOG2: ceil_log2,
    FunctionName.LOG2: log2,
}


# --- Evaluation, with limits on steps and depth ---


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

"""Exact arithmetic on integers and rationals that cannot be made to grow without bound."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil, floor

from torchstone.errors import FormulaError
from torchstone.formula.expression import FunctionName, Operator, Relation, Value, exact

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
    """What is left of the division rounded down; it has the sign of the divisor."""
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


def _short(number: int) -> str:
    return str(number) if abs(number) < 10**20 else f"of {number.bit_length()} bits"


def _refuse_zero(divisor: Value, operator: str) -> None:
    if divisor == 0:
        msg = f"division by zero in {operator}"
        raise FormulaError(msg)


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
}

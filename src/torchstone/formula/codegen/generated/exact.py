"""Arithmetic on integers and fractions that never rounds unless the formula says so."""

import math
from fractions import Fraction

Value = int | Fraction


class OutsideDomainError(ValueError):
    """The parameters are outside the domain in which a formula holds."""


def whole(value: Value) -> Value:
    """The same number, as an int where it is whole."""
    return value.numerator if value.denominator == 1 else value


def fraction(numerator: int, denominator: int) -> Value:
    """A number that is not whole."""
    return Fraction(numerator, denominator)


def divide(left: Value, right: Value) -> Value:
    """The exact quotient."""
    return whole(Fraction(left) / right)


def power(base: Value, exponent: Value) -> Value:
    """A whole power."""
    if exponent.denominator != 1:
        msg = f"the exponent {exponent} is not a whole number"
        raise ValueError(msg)
    result: Fraction = Fraction(base) ** exponent.numerator
    return whole(result)


def smallest(*values: Value) -> Value:
    """The smallest of some numbers."""
    return min(values)


def largest(*values: Value) -> Value:
    """The largest of some numbers."""
    return max(values)


def rounded_up(value: Value) -> Value:
    """The next whole number upwards."""
    return math.ceil(value)


def rounded_down(value: Value) -> Value:
    """The next whole number downwards."""
    return math.floor(value)


def ceil_log2(value: Value) -> Value:
    """The smallest n with 2**n >= value; 0 for numbers up to 1."""
    return (math.ceil(value) - 1).bit_length() if value > 1 else 0


def log2(value: Value) -> Value:
    """The logarithm in double precision, as an exact number; 0 for numbers up to 1."""
    return whole(Fraction(math.log2(value))) if value > 1 else 0


def truth(condition: bool) -> Value:  # noqa: FBT001 - a condition is what this is about
    """1 where the condition holds, else 0."""
    return int(condition)


def require(condition: bool, explanation: str) -> None:  # noqa: FBT001 - a condition is what this is about
    """Refuse parameters for which a formula does not hold."""
    if not condition:
        raise OutsideDomainError(explanation)

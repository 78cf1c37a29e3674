"""The largest value of a parameter for which a cost stays within a limit."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torchstone.errors import FormulaError
from torchstone.formula.evaluating import evaluate
from torchstone.formula.expression import (
    Binary,
    Expression,
    Function,
    Operator,
    Parameter,
    Value,
    free_parameters,
)
from torchstone.formula.polynomial import Polynomial, expand, tree_of

LARGEST = 2**62
MAX_STEPS_BACK = 10_000  # to the next value that the domain allows


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What fits, what it costs there, and what the next one would."""

    parameter: str
    value: int
    cost: Value
    next_cost: Value
    proven: bool  # whether the cost is known never to fall as the parameter grows


def largest_within(cost: Expression, name: str, limit: Value, *, domain: Sequence[Expression] = ()) -> Solution | None:
    """The largest value whose cost is within the limit; None where not even the smallest allowed one is."""
    if name not in free_parameters(cost):
        msg = f"the cost does not depend on {name}"
        raise FormulaError(msg)

    def fits(at: int) -> bool:
        return evaluate(cost, {name: at}) <= limit

    if not fits(1):
        return None
    value = _allowed(_last_that_fits(fits, name), name, domain)
    if value is None:
        return None
    return Solution(
        parameter=name,
        value=value,
        cost=evaluate(cost, {name: value}),
        next_cost=evaluate(cost, {name: value + 1}),
        proven=rises(cost),
    )


def _last_that_fits(fits: Callable[[int], bool], name: str) -> int:
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
        if high > LARGEST:
            msg = f"every {name} up to {LARGEST} fits; there is no limit to find"
            raise FormulaError(msg)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _allowed(value: int, name: str, domain: Iterable[Expression]) -> int | None:
    """The value, or the next smaller one that the domain allows."""
    conditions = [condition for condition in domain if free_parameters(condition) == (name,)]
    for candidate in range(value, max(0, value - MAX_STEPS_BACK), -1):
        if all(evaluate(condition, {name: candidate}) != 0 for condition in conditions):
            return candidate
    return None


def rises(tree: Expression) -> bool:
    """Whether a formula of one positive parameter is shown never to fall as it grows."""
    polynomial = expand(tree)
    return all(factor > 0 for monomial, factor in polynomial.terms.items() if monomial) and _atoms_rise(polynomial)


def _atoms_rise(polynomial: Polynomial) -> bool:
    return all(
        exponent > 0 and _atom_rises(tree_of(atom)) for monomial in polynomial.terms for atom, exponent in monomial
    )


def _atom_rises(atom: Expression) -> bool:
    match atom:
        case Parameter():
            return True
        case Binary(operator=Operator.FLOOR_DIVIDE):
            divisor = expand(atom.right).number
            return divisor is not None and divisor > 0 and _positive_and_rising(atom.left)
        case Function():
            return all(_positive_and_rising(argument) for argument in atom.arguments)
        case _:
            return False


def _positive_and_rising(tree: Expression) -> bool:
    polynomial = expand(tree)
    return all(factor > 0 for factor in polynomial.terms.values()) and _atoms_rise(polynomial)

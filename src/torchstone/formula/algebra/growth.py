"""How a cost grows with a parameter, which term dominates from where on, and the largest value within a limit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchstone.errors import FormulaError
from torchstone.formula.algebra.polynomial import Polynomial, expand, tree_of
from torchstone.formula.language.evaluate import evaluate
from torchstone.formula.language.expression import (
    Binary,
    Choose,
    Compare,
    Expression,
    Function,
    FunctionName,
    Logical,
    Not,
    Operator,
    Parameter,
    Value,
    free_parameters,
)

# --- Growth with one parameter, and the largest part from which value on ---


FASTEST = 10**6  # stands for: faster than any power
LARGEST_POWER = 2**40  # how far parts are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The power of a parameter that a cost grows with, and what stands before it."""

    parameter: str
    order: int  # 0: it does not grow
    leading: Expression | None  # None where the power is hidden in a rounding, a maximum or a choice

    @property
    def text(self) -> str:
        """As people write it: O(S**2)."""
        if self.order == 0:
            return "O(1)"
        if self.order >= FASTEST:
            return f"faster than any power of {self.parameter}"
        return f"O({self.parameter})" if self.order == 1 else f"O({self.parameter}**{self.order})"


def growth_of(tree: Expression) -> list[Growth]:
    """How a formula without calls grows with each of its parameters."""
    polynomial = expand(tree)
    return [_growth(polynomial, name) for name in free_parameters(tree)]


def _growth(polynomial: Polynomial, name: str) -> Growth:
    order = _degree(polynomial, name)
    powers = polynomial.by_power_of(name)
    return Growth(parameter=name, order=order, leading=powers[order].with_shared_factor if order in powers else None)


def _degree(polynomial: Polynomial, name: str) -> int:
    degrees = (
        sum(exponent * _degree_of_atom(tree_of(atom), name) for atom, exponent in monomial)
        for monomial in polynomial.terms
    )
    return max(0, *degrees, 0)


def _degree_of_atom(node: Expression, name: str) -> int:
    if name not in free_parameters(node):
        return 0
    if isinstance(node, Parameter):
        return 1
    match node:
        case Binary():
            return _degree_of_binary(node, name)
        case Function():
            return _degree_of_function(node, name)
        case Choose():
            return max(_degree_of(node.chosen, name), _degree_of(node.otherwise, name))
        case Compare() | Logical() | Not():
            return 0  # 0 or 1, whatever the parameter
        case _:
            return _degree(expand(node), name)


def _degree_of(node: Expression, name: str) -> int:
    return _degree(expand(node), name)


def _degree_of_binary(node: Binary, name: str) -> int:
    left, right = _degree_of(node.left, name), _degree_of(node.right, name)
    match node.operator:
        case Operator.FLOOR_DIVIDE:
            return max(0, left - right)
        case Operator.MODULO:
            return min(left, right)
        case _:
            return FASTEST


def _degree_of_function(node: Function, name: str) -> int:
    if node.name in (FunctionName.CEIL_LOG2, FunctionName.LOG2):
        return 0  # slower than any power
    degrees = [_degree_of(argument, name) for argument in node.arguments]
    return min(degrees) if node.name is FunctionName.MIN else max(degrees)


@dataclass(frozen=True, slots=True, kw_only=True)
class DominantRange:
    """The largest part of a cost from one value of a parameter on, and its share at that value."""

    part: str
    first: int
    share: float


def dominant_ranges(
    parts: Mapping[str, Expression], name: str, values: Mapping[str, Value], *, first: int = 1
) -> list[DominantRange]:
    """Which of several parts is the largest, as one parameter grows.

    Parts are compared at powers of two; where the largest changes in between, bisection finds the value. A part that is
    the largest only strictly inside such an interval is missed.
    """

    def largest_at(at: int) -> str:
        costs = _costs(parts, {**values, name: at})
        return max(costs, key=lambda part: costs[part])

    starts = [(first, largest_at(first))]
    low = first
    while low < LARGEST_POWER:
        high = min(2 * low, LARGEST_POWER)
        while largest_at(high) != starts[-1][1]:
            change = _first_change(largest_at, low, high, starts[-1][1])
            starts.append((change, largest_at(change)))
            low = change
        low = high
    return [DominantRange(part=part, first=at, share=_share(parts, part, {**values, name: at})) for at, part in starts]


def _first_change(largest_at: Callable[[int], str], low: int, high: int, before: str) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        if largest_at(middle) == before:
            low = middle
        else:
            high = middle
    return high


def _costs(parts: Mapping[str, Expression], point: Mapping[str, Value]) -> dict[str, Value]:
    return {part: evaluate(tree, point) for part, tree in parts.items()}


def _share(parts: Mapping[str, Expression], part: str, point: Mapping[str, Value]) -> float:
    costs = _costs(parts, point)
    total = sum(costs.values())
    return float(costs[part] / total) if total else 0.0


# --- Solving: the largest value of a parameter within a limit ---


LARGEST_SOLUTION = 2**62
MAX_STEPS_BACK = 10_000  # to the next value that the domain allows


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The largest value within the limit, the cost there, and the cost of the next value."""

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
        if high > LARGEST_SOLUTION:
            msg = f"every {name} up to {LARGEST_SOLUTION} fits; there is no limit to find"
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

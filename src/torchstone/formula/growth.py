"""How a cost grows with a parameter, and which part of it is the largest from where on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torchstone.formula.evaluating import evaluate
from torchstone.formula.expression import (
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
from torchstone.formula.polynomial import Polynomial, expand, tree_of

FASTEST = 10**6  # stands for: faster than any power
LARGEST = 2**40  # how far parts are compared


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
    rule = _DEGREES.get(type(node))
    return _degree(expand(node), name) if rule is None else rule(node, name)


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
    if node.name is FunctionName.CEIL_LOG2:
        return 0  # slower than any power
    degrees = [_degree_of(argument, name) for argument in node.arguments]
    return min(degrees) if node.name is FunctionName.MIN else max(degrees)


def _degree_of_choice(node: Choose, name: str) -> int:
    return max(_degree_of(node.chosen, name), _degree_of(node.otherwise, name))


def _no_growth(_node: Expression, _name: str) -> int:
    return 0


_DEGREES: dict[type[Expression], Callable[[Any, str], int]] = {
    Binary: _degree_of_binary,
    Function: _degree_of_function,
    Choose: _degree_of_choice,
    Compare: _no_growth,
    Logical: _no_growth,
    Not: _no_growth,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """From which value on which part is the largest, and its share there."""

    part: str
    first: int
    share: float


def reigns(parts: Mapping[str, Expression], name: str, values: Mapping[str, Value], *, first: int = 1) -> list[Reign]:
    """Which of several parts is the largest, as one parameter grows; changes within an octave are found by halving."""

    def ruler(at: int) -> str:
        costs = _costs(parts, {**values, name: at})
        return max(costs, key=lambda part: costs[part])

    starts = [(first, ruler(first))]
    low = first
    while low < LARGEST:
        high = min(2 * low, LARGEST)
        while ruler(high) != starts[-1][1]:
            change = _first_change(ruler, low, high, starts[-1][1])
            starts.append((change, ruler(change)))
            low = change
        low = high
    return [Reign(part=part, first=at, share=_share(parts, part, {**values, name: at})) for at, part in starts]


def _first_change(ruler: Callable[[int], str], low: int, high: int, before: str) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        if ruler(middle) == before:
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

"""Expressions multiplied out: sums of products of parameters, by which formulas are compared, ordered and solved.

What is no sum or product (a rounded quotient, a maximum, a choice, a call) is kept whole and treated like a parameter,
so two formulas with the same polynomial are equal in value, while two with different ones may still be.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd
from typing import Any

from torchstone.errors import FormulaError
from torchstone.formula.arithmetic import bounded
from torchstone.formula.evaluating import evaluate
from torchstone.formula.expression import (
    Binary,
    Call,
    Choose,
    Expression,
    Negate,
    Number,
    Operator,
    Parameter,
    Product,
    Sum,
    Value,
    children,
    with_children,
)
from torchstone.formula.printing import show

MAX_TERMS = 20_000
MAX_EXPONENT = 64
_PAIR = 2

Monomial = frozenset[tuple[Expression, int]]  # parameters and what is kept whole, each with its exponent
_ONE: Monomial = frozenset()


@dataclass(frozen=True)
class Polynomial:
    """Products with their factors in front; a factor is never 0."""

    terms: Mapping[Monomial, Value]

    @cached_property
    def tree(self) -> Expression:
        """The sum as an expression, the highest powers first."""
        ordered = sorted(self.terms.items(), key=lambda term: _order(term[0]))
        if not ordered:
            return Number(0)
        first, *others = (_product(monomial, factor) for monomial, factor in ordered)
        return Sum((first, *(_negated(term) for term in others))) if others else first

    @property
    def constant(self) -> Value | None:
        """The number that this is; None where it depends on something."""
        if not self.terms:
            return 0
        return self.terms.get(_ONE) if len(self.terms) == 1 else None

    @property
    def with_common_factor(self) -> Expression:
        """The sum with what all its terms share in front: 2 * B * (S + 3)."""
        if len(self.terms) < _PAIR:
            return self.tree
        monomials = [dict(monomial) for monomial in self.terms]
        shared = {atom: min(one.get(atom, 0) for one in monomials) for atom in monomials[0] if monomials[0][atom] > 0}
        common = frozenset((atom, exponent) for atom, exponent in shared.items() if exponent > 0)
        number = _common_number(self.terms.values())
        if not common and number == 1:
            return self.tree
        rest = _multiplied(self, _inverse(Polynomial({common: number})))
        head = _product(common, number)
        return Product((*(head.factors if isinstance(head, Product) else (head,)), rest.tree))

    def by_power_of(self, name: str) -> dict[int, "Polynomial"]:
        """What each power of a parameter is multiplied by; a parameter inside something kept whole counts as 0."""
        powers: dict[int, dict[Monomial, Value]] = {}
        for monomial, factor in self.terms.items():
            exponent = dict(monomial).get(Parameter(name), 0)
            rest = frozenset(one for one in monomial if one[0] != Parameter(name))
            powers.setdefault(exponent, {})[rest] = factor
        return {exponent: Polynomial(powers[exponent]) for exponent in sorted(powers, reverse=True)}


def expand(root: Expression) -> Polynomial:
    """An expression multiplied out; one that would grow beyond reason is refused."""
    return _RULES.get(type(root), _whole)(root)


def simplified(root: Expression) -> Expression:
    """The expression multiplied out and written in a fixed order; equal polynomials give equal trees."""
    return expand(root).tree


def same_value(left: Expression, right: Expression) -> bool:
    """Whether two formulas are equal everywhere; False where that could not be shown."""
    return expand(left).terms == expand(right).terms


def _number(node: Number) -> Polynomial:
    return _of_number(node.value)


def _of_number(value: Value) -> Polynomial:
    return Polynomial({_ONE: value} if value else {})


def _atom(node: Expression, exponent: int = 1) -> Polynomial:
    return Polynomial({frozenset({(node, exponent)}): 1})


def _sum(node: Sum) -> Polynomial:
    return _added(expand(term) for term in node.terms)


def _negate(node: Negate) -> Polynomial:
    return _scaled(expand(node.operand), -1)


def _product_of(node: Product) -> Polynomial:
    total = _of_number(1)
    for factor in node.factors:
        total = _multiplied(total, expand(factor))
    return total


def _binary(node: Binary) -> Polynomial:
    match node.operator:
        case Operator.DIVIDE:
            return _divided(expand(node.left), expand(node.right))
        case Operator.POWER:
            return _raised(node)
        case _:
            return _whole(node)


def _divided(left: Polynomial, right: Polynomial) -> Polynomial:
    if not right.terms:
        msg = "division by zero in /"
        raise FormulaError(msg)
    return _multiplied(left, _inverse(right))


def _inverse(divisor: Polynomial) -> Polynomial:
    if len(divisor.terms) > 1:
        return _atom(divisor.tree, -1)
    ((monomial, factor),) = divisor.terms.items()
    return Polynomial({frozenset((atom, -exponent) for atom, exponent in monomial): bounded(Fraction(1) / factor)})


def _raised(node: Binary) -> Polynomial:
    exponent = expand(node.right).constant
    if not isinstance(exponent, int) or abs(exponent) > MAX_EXPONENT:
        return _whole(node)
    base = expand(node.left)
    if exponent < 0:
        base = _divided(_of_number(1), base)
    total = _of_number(1)
    for _ in range(abs(exponent)):
        total = _multiplied(total, base)
    return total


def _choose(node: Choose) -> Polynomial:
    condition = expand(node.condition).constant
    if condition is None:
        return _whole(node)
    return expand(node.chosen if condition else node.otherwise)


def _whole(node: Expression) -> Polynomial:
    """Kept whole over simplified operands; computed where all of these are numbers."""
    operands = tuple(simplified(operand) for operand in children(node))
    tidy = with_children(node, operands)
    if operands and all(isinstance(operand, Number) for operand in operands) and not isinstance(node, Call):
        return _of_number(evaluate(tidy, {}))
    return _atom(tidy)


def _added(parts: Iterable[Polynomial]) -> Polynomial:
    total: dict[Monomial, Value] = {}
    for part in parts:
        for monomial, factor in part.terms.items():
            total[monomial] = bounded(total.get(monomial, 0) + factor)
    return _limited(total)


def _scaled(one: Polynomial, factor: Value) -> Polynomial:
    return Polynomial({monomial: bounded(factor * own) for monomial, own in one.terms.items()})


def _multiplied(left: Polynomial, right: Polynomial) -> Polynomial:
    if len(left.terms) * len(right.terms) > MAX_TERMS:
        raise FormulaError(_TOO_LONG)
    total: dict[Monomial, Value] = {}
    for one, own in left.terms.items():
        for other, factor in right.terms.items():
            monomial = _joined(one, other)
            total[monomial] = bounded(total.get(monomial, 0) + own * factor)
    return _limited(total)


def _joined(one: Monomial, other: Monomial) -> Monomial:
    if not one or not other:
        return one or other
    exponents = Counter(dict(one))
    for atom, exponent in other:
        exponents[atom] += exponent
    return frozenset((atom, exponent) for atom, exponent in exponents.items() if exponent)


def _limited(terms: dict[Monomial, Value]) -> Polynomial:
    if len(terms) > MAX_TERMS:
        raise FormulaError(_TOO_LONG)
    return Polynomial({monomial: factor for monomial, factor in terms.items() if factor})


def _common_number(factors: Collection[Value]) -> int:
    """The largest whole number that divides all factors; 1 where one of them is not whole."""
    whole = [factor for factor in factors if isinstance(factor, int)]
    return gcd(*whole) if len(whole) == len(factors) else 1


_TOO_LONG = f"multiplied out, the formula has more than {MAX_TERMS} terms"
_RULES: dict[type[Expression], Callable[[Any], Polynomial]] = {
    Number: _number,
    Parameter: _atom,
    Sum: _sum,
    Negate: _negate,
    Product: _product_of,
    Binary: _binary,
    Choose: _choose,
}


def _product(monomial: Monomial, factor: Value) -> Expression:
    above = [_power(atom, exponent) for atom, exponent in sorted(monomial, key=_name) if exponent > 0]
    below = [_power(atom, -exponent) for atom, exponent in sorted(monomial, key=_name) if exponent < 0]
    numbers = [] if factor == 1 and above else [Number(factor)]
    if factor == -1 and above:
        head = _joined_factors([Negate(above[0]), *above[1:]])
    else:
        head = _joined_factors([*numbers, *above])
    return Binary(Operator.DIVIDE, head, _joined_factors(below)) if below else head


def _joined_factors(factors: list[Expression]) -> Expression:
    return factors[0] if len(factors) == 1 else Product(tuple(factors))


def _power(atom: Expression, exponent: int) -> Expression:
    return atom if exponent == 1 else Binary(Operator.POWER, atom, Number(exponent))


def _negated(term: Expression) -> Expression:
    """A term with a negative number in front as the negation of the positive one, to be shown as a difference."""
    if not isinstance(term, Product):
        return term
    first, *others = term.factors
    if isinstance(first, Negate):
        return Negate(_joined_factors([first.operand, *others]))
    if isinstance(first, Number) and first.value < 0:
        return Negate(Product((Number(-first.value), *others)))
    return term


def _order(monomial: Monomial) -> tuple[int, list[tuple[str, int]]]:
    degree = sum(exponent for _, exponent in monomial)
    return -degree, sorted((show(atom, plain=True), -exponent) for atom, exponent in monomial)


def _name(factor: tuple[Expression, int]) -> str:
    return show(factor[0], plain=True)

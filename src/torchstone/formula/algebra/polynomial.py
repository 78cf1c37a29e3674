"""Exact polynomials: sums of products of parameters, by which formulas are derived, compared, ordered and solved.

Coefficients are rational, powers are whole and may be negative. What is no sum or product (a rounded quotient, a
maximum, a choice, a call) is kept whole and treated like a parameter, so two formulas with the same polynomial are
equal in value, while two with different ones may still be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import gcd

from torchstone.errors import FormulaError
from torchstone.formula.language.evaluate import bounded, evaluate, log2
from torchstone.formula.language.expression import (
    Binary,
    Call,
    Choose,
    Compare,
    Expression,
    Function,
    FunctionName,
    Negate,
    Number,
    Operator,
    Parameter,
    Product,
    Relation,
    Sum,
    Value,
    children,
    exact,
    free_parameters,
    substitute,
    with_children,
)
from torchstone.formula.language.print import show

MAX_TERMS = 20_000
MAX_EXPONENT = 64
_PAIR = 2

FLOOR_DIVIDE, MODULO, BIT_LENGTH, CHOOSE, MIN, EQUAL = "floordiv", "modulo", "bit_length", "choose", "min", "equal"
LOG2 = "log2"
FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    FLOOR_DIVIDE: lambda left, right: left // right,
    MODULO: lambda left, right: left % right,
    BIT_LENGTH: lambda number: int(number).bit_length(),
    CHOOSE: lambda left, right, smaller, otherwise: smaller if left < right else otherwise,
    MIN: min,
    EQUAL: lambda left, right: int(left == right),
    LOG2: log2,
}


@dataclass(frozen=True, slots=True)
class Applied:
    """A function that is not a polynomial, applied to polynomials."""

    name: str  # a key of FUNCTIONS
    arguments: tuple[Polynomial, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


Atom = str | Applied | Expression  # a parameter by its name, or an indivisible part; never a Parameter node
Monomial = frozenset[tuple[Atom, int]]  # no exponent is 0
Powers = tuple[tuple[Atom, int], ...]  # the same, sorted by name
_ONE: Monomial = frozenset()


@dataclass(frozen=True)
class Polynomial:
    """Products with their coefficients; equal sums are equal objects, whatever their order."""

    terms: Mapping[Monomial, Value] = field(default_factory=dict)  # no coefficient is 0

    @staticmethod
    def constant(value: Value) -> Polynomial:
        """A number."""
        return Polynomial({_ONE: bounded(Fraction(value))} if value else {})

    @staticmethod
    def unknown(atom: Atom, power: int = 1) -> Polynomial:
        """A parameter, or what is kept whole, to a power."""
        return Polynomial({frozenset({(atom, power)} if power else ()): 1})

    @staticmethod
    def product(coefficient: Value, powers: Mapping[str, int]) -> Polynomial:
        """One term."""
        monomial: Monomial = frozenset((name, power) for name, power in powers.items() if power)
        return Polynomial({monomial: bounded(Fraction(coefficient))} if coefficient else {})

    @staticmethod
    def total(parts: Iterable[Polynomial]) -> Polynomial:
        """The sum of many, without a polynomial for each partial sum."""
        terms: dict[Monomial, Value] = {}
        for part in parts:
            for monomial, factor in part.terms.items():
                terms[monomial] = bounded(terms.get(monomial, 0) + factor)
        return _limited(terms)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __add__(self, other: Polynomial) -> Polynomial:
        return Polynomial.total((self, other))

    def __neg__(self) -> Polynomial:
        return Polynomial({monomial: -factor for monomial, factor in self.terms.items()})

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        if len(self.terms) * len(other.terms) > MAX_TERMS:  # refused before the time is spent
            raise FormulaError(_TOO_LONG)
        terms: dict[Monomial, Value] = {}
        for one, own in self.terms.items():
            for another, factor in other.terms.items():
                monomial = _joined(one, another)
                terms[monomial] = bounded(terms.get(monomial, 0) + own * factor)
        return _limited(terms)

    def __pow__(self, exponent: int) -> Polynomial:
        if exponent < 0:
            ((monomial, factor),) = self.terms.items()  # only a product can be turned over
            turned: Monomial = frozenset((atom, -power) for atom, power in monomial)
            return Polynomial({turned: bounded(Fraction(1) / factor)}) ** -exponent
        result = ONE
        for _ in range(exponent):
            result *= self
        return result

    def __str__(self) -> str:
        return " + ".join(
            "*".join([str(factor), *(f"{_label(atom)}**{power}" for atom, power in powers)])
            for powers, factor in self.ordered
        )

    @cached_property
    def ordered(self) -> tuple[tuple[Powers, Value], ...]:
        """The terms in a fixed order: high degrees first, then by name."""
        sorted_terms = [(tuple(sorted(monomial, key=_name)), factor) for monomial, factor in self.terms.items()]
        return tuple(sorted(sorted_terms, key=lambda term: _order(term[0])))

    @property
    def number(self) -> Value | None:
        """The number that this is; None where it depends on something."""
        if not self.terms:
            return 0
        return self.terms.get(_ONE) if len(self.terms) == 1 else None

    @property
    def coefficients(self) -> tuple[Value, ...]:
        """The number before each term."""
        return tuple(self.terms.values())

    @property
    def unknowns(self) -> frozenset[str]:
        """The names of the parameters in it, also inside what is kept whole."""
        return frozenset(name for monomial in self.terms for atom, _ in monomial for name in _names_in(atom))

    def value(self, values: Mapping[str, Value]) -> Value:
        """The number it stands for where every parameter has a value."""
        total: Value = 0
        for monomial, factor in self.terms.items():
            term = factor
            for atom, power in monomial:
                base = _value_of(atom, values)
                term = term * base**power if power > 0 else term / Fraction(base) ** -power
            total += term
        return exact(total)

    def replaced(self, by: Mapping[str, Polynomial]) -> Polynomial:
        """The same with parameters replaced; those without a replacement stay."""
        parts = []
        for monomial, factor in self.terms.items():
            part = Polynomial.constant(factor)
            for atom, power in monomial:
                part *= _replaced_atom(atom, by) ** power
            parts.append(part)
        return Polynomial.total(parts)

    def divided(self, divisor: Polynomial) -> Polynomial:
        """Floor division where all parameters are whole numbers; exact parts leave the floor."""
        if len(divisor.terms) == 1 and all(_divides(divisor, *term) for term in self.terms.items()):
            return self * divisor**-1
        number = divisor.number
        if number is not None and number > 0:
            quotients = {monomial: Fraction(factor) / number for monomial, factor in self.terms.items()}
            whole = Polynomial({monomial: exact(one) for monomial, one in quotients.items() if one.denominator == 1})
            rest = (self - whole * divisor).number
            if rest is not None and rest.denominator == 1:
                return whole + Polynomial.constant(rest // number)
        return Polynomial.unknown(Applied(FLOOR_DIVIDE, (self, divisor)))

    def largest_divisor(self) -> int:
        """The largest whole number that divides all coefficients; 1 where they are not whole."""
        return _shared_number(self.terms.values()) if self.terms else 1

    @cached_property
    def tree(self) -> Expression:
        """The sum as an expression, the highest powers first."""
        if not self.terms:
            return Number(0)
        first, *others = (_product(powers, factor) for powers, factor in self.ordered)
        return Sum((first, *(_negated(term) for term in others))) if others else first

    @property
    def with_shared_factor(self) -> Expression:
        """The sum with what all its terms share in front: 2 * B * (S + 3)."""
        if len(self.terms) < _PAIR:
            return self.tree
        monomials = [dict(monomial) for monomial in self.terms]
        shared = {atom: min(one.get(atom, 0) for one in monomials) for atom in monomials[0] if monomials[0][atom] > 0}
        common: Monomial = frozenset((atom, exponent) for atom, exponent in shared.items() if exponent > 0)
        number = self.largest_divisor()
        if not common and number == 1:
            return self.tree
        rest = self * Polynomial({common: number}) ** -1
        head = _product(tuple(sorted(common, key=_name)), number)
        return Product((*(head.factors if isinstance(head, Product) else (head,)), rest.tree))

    def by_power_of(self, name: str) -> dict[int, Polynomial]:
        """The factor of each power of a parameter; a parameter inside an indivisible atom counts as power 0."""
        powers: dict[int, dict[Monomial, Value]] = {}
        for monomial, factor in self.terms.items():
            exponent = dict(monomial).get(name, 0)
            rest = frozenset(one for one in monomial if one[0] != name)
            powers.setdefault(exponent, {})[rest] = factor
        return {exponent: Polynomial(powers[exponent]) for exponent in sorted(powers, reverse=True)}


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


def _shared_number(factors: Collection[Value]) -> int:
    """The largest whole number that divides all factors; 1 where one of them is not whole."""
    whole = [factor for factor in factors if isinstance(factor, int)]
    return gcd(*whole) if len(whole) == len(factors) else 1


def _divides(divisor: Polynomial, monomial: Monomial, factor: Value) -> bool:
    """Whether a term is a whole multiple of a divisor of one term."""
    ((below, number),) = divisor.terms.items()
    powers = dict(monomial)
    whole = (Fraction(factor) / number).denominator == 1
    return whole and all(powers.get(atom, 0) >= power for atom, power in below)


def _label(atom: Atom) -> str:
    return str(atom) if isinstance(atom, str | Applied) else show(atom, plain=True)


def _name(factor: tuple[Atom, int]) -> str:
    return _label(factor[0])


def _order(powers: Powers) -> tuple[int, list[tuple[str, int]]]:
    return -sum(power for _, power in powers), [(_label(atom), -power) for atom, power in powers]


def _names_in(atom: Atom) -> Iterable[str]:
    if isinstance(atom, str):
        return (atom,)
    if isinstance(atom, Applied):
        return frozenset().union(*(argument.unknowns for argument in atom.arguments))
    return free_parameters(atom)


def _value_of(atom: Atom, values: Mapping[str, Value]) -> Value:
    if isinstance(atom, str):
        value = values[atom]
        return value if type(value) is int else Fraction(value)  # a subclass of int may do its own arithmetic
    if isinstance(atom, Applied):
        return FUNCTIONS[atom.name](*(argument.value(values) for argument in atom.arguments))
    return evaluate(atom, values)


def _replaced_atom(atom: Atom, by: Mapping[str, Polynomial]) -> Polynomial:
    if isinstance(atom, str):
        return by[atom] if atom in by else Polynomial.unknown(atom)
    if not isinstance(atom, Applied):
        return expand(substitute(atom, {name: form.tree for name, form in by.items()}))
    arguments = tuple(argument.replaced(by) for argument in atom.arguments)
    numbers = [argument.number for argument in arguments]
    if None not in numbers:
        return Polynomial.constant(FUNCTIONS[atom.name](*numbers))
    return Polynomial.unknown(Applied(atom.name, arguments))


def tree_of(atom: Atom) -> Expression:
    """A parameter, or what is kept whole, as an expression."""
    if isinstance(atom, str):
        return Parameter(atom)
    if not isinstance(atom, Applied):
        return atom
    match atom.name, [argument.tree for argument in atom.arguments]:
        case "floordiv", [left, right]:
            return Binary(Operator.FLOOR_DIVIDE, left, right)
        case "modulo", [left, right]:
            return Binary(Operator.MODULO, left, right)
        case "choose", [left, right, smaller, otherwise]:
            return Choose(Compare(Relation.LESS, left, right), smaller, otherwise)
        case "min", trees:
            return Function(FunctionName.MIN, tuple(trees))
        case "equal", [left, right]:
            return Choose(Compare(Relation.EQUAL, left, right), Number(1), Number(0))
        case "log2", [number]:
            return Function(FunctionName.LOG2, (number,))
        case _:  # the bits of n are the steps of a binary search among n + 1
            return Function(FunctionName.CEIL_LOG2, ((atom.arguments[0] + ONE).tree,))


def _product(powers: Powers, factor: Value) -> Expression:
    above = [_power(atom, exponent) for atom, exponent in powers if exponent > 0]
    below = [_power(atom, -exponent) for atom, exponent in powers if exponent < 0]
    numbers = [] if factor == 1 and above else [Number(factor)]
    if factor == -1 and above:
        head = _joined_factors([Negate(above[0]), *above[1:]])
    else:
        head = _joined_factors([*numbers, *above])
    return Binary(Operator.DIVIDE, head, _joined_factors(below)) if below else head


def _joined_factors(factors: list[Expression]) -> Expression:
    return factors[0] if len(factors) == 1 else Product(tuple(factors))


def _power(atom: Atom, exponent: int) -> Expression:
    return tree_of(atom) if exponent == 1 else Binary(Operator.POWER, tree_of(atom), Number(exponent))


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


def expand(root: Expression) -> Polynomial:
    """An expression multiplied out; one that would grow beyond reason is refused."""
    match root:
        case Number():
            return Polynomial.constant(root.value)
        case Parameter():
            return Polynomial.unknown(root.name)
        case Product():
            return _product_of(root)
        case Sum():
            return Polynomial.total(expand(term) for term in root.terms)
        case Negate():
            return -expand(root.operand)
        case Binary():
            return _binary(root)
        case Choose():
            return _choose(root)
        case _:
            return _whole(root)


def simplified(root: Expression) -> Expression:
    """The expression multiplied out and written in a fixed order; equal polynomials give equal trees."""
    return expand(root).tree


def same_value(left: Expression, right: Expression) -> bool:
    """Whether two formulas are equal everywhere; False where that could not be shown."""
    return expand(left) == expand(right)


def _product_of(node: Product) -> Polynomial:
    total = ONE
    for factor in node.factors:
        total *= expand(factor)
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
    return left * (right**-1 if len(right.terms) == 1 else Polynomial.unknown(right.tree, -1))


def _raised(node: Binary) -> Polynomial:
    exponent = expand(node.right).number
    if not isinstance(exponent, int) or abs(exponent) > MAX_EXPONENT:
        return _whole(node)
    base = expand(node.left)
    return base**exponent if exponent >= 0 else _divided(ONE, base) ** -exponent


def _choose(node: Choose) -> Polynomial:
    condition = expand(node.condition).number
    if condition is None:
        return _whole(node)
    return expand(node.chosen if condition else node.otherwise)


def _whole(node: Expression) -> Polynomial:
    """An expression that is not a polynomial, as one atom over simplified operands; a number where all of these are."""
    operands = tuple(simplified(operand) for operand in children(node))
    tidy = with_children(node, operands)
    if operands and all(isinstance(operand, Number) for operand in operands) and not isinstance(node, Call):
        return Polynomial.constant(evaluate(tidy, {}))
    return Polynomial.unknown(tidy)


ZERO = Polynomial()
ONE = Polynomial.constant(1)
_TOO_LONG = f"multiplied out, the formula has more than {MAX_TERMS} terms"

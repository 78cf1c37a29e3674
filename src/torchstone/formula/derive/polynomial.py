"""Exact arithmetic with unknowns: rational coefficients, whole powers (also negative) and a few functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm


@dataclass(frozen=True, slots=True)
class Function:
    """A function that is no polynomial, applied to polynomials."""

    name: str  # a key of FUNCTIONS
    arguments: tuple[Polynomial, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


Unknown = str | Function
Powers = tuple[tuple[Unknown, int], ...]  # sorted by name, no power is zero
Values = Mapping[str, int]

FLOOR_DIVIDE, MODULO, BIT_LENGTH, CHOOSE, MIN = "floordiv", "modulo", "bit_length", "choose", "min"
FUNCTIONS: Mapping[str, Callable[..., int | Fraction]] = {
    FLOOR_DIVIDE: lambda left, right: left // right,
    MODULO: lambda left, right: left % right,
    BIT_LENGTH: lambda number: int(number).bit_length(),
    CHOOSE: lambda left, right, smaller, otherwise: smaller if left < right else otherwise,
    MIN: min,
}


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of products; equal sums are equal objects."""

    terms: tuple[tuple[Powers, Fraction], ...] = ()  # sorted, no coefficient is zero

    @staticmethod
    def constant(value: int | Fraction) -> Polynomial:
        """A number."""
        return _sum({(): Fraction(value)})

    @staticmethod
    def unknown(name: Unknown, power: int = 1) -> Polynomial:
        """An unknown to a power."""
        return _sum({((name, power),): Fraction(1)})

    @staticmethod
    def product(coefficient: int | Fraction, powers: Mapping[str, int]) -> Polynomial:
        """One term."""
        return _sum({_sorted(dict(powers)): Fraction(coefficient)})

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for powers, coefficient in other.terms:
            terms[powers] = terms.get(powers, Fraction(0)) + coefficient
        return _sum(terms)

    def __neg__(self) -> Polynomial:
        return Polynomial(tuple((powers, -coefficient) for powers, coefficient in self.terms))

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        terms: dict[Powers, Fraction] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                powers = _merged(left, right)
                terms[powers] = terms.get(powers, Fraction(0)) + a * b
        return _sum(terms)

    def __pow__(self, exponent: int) -> Polynomial:
        if exponent < 0:
            ((powers, coefficient),) = self.terms  # only a product can be turned over
            return _sum({tuple((name, power * exponent) for name, power in powers): coefficient**exponent})
        result = ONE
        for _ in range(exponent):
            result *= self
        return result

    def __str__(self) -> str:
        return " + ".join(
            "*".join([str(coefficient), *(f"{name}**{power}" for name, power in powers)])
            for powers, coefficient in self.terms
        )

    @property
    def number(self) -> Fraction | None:
        """The value of a polynomial without unknowns, None where there are some."""
        if not self.terms:
            return Fraction(0)
        return self.terms[0][1] if self.terms[0][0] == () and len(self.terms) == 1 else None

    @property
    def unknowns(self) -> frozenset[str]:
        """The names in it, also inside functions."""
        names: set[str] = set()
        for powers, _ in self.terms:
            for unknown, _power in powers:
                if isinstance(unknown, str):
                    names.add(unknown)
                else:
                    names.update(*(argument.unknowns for argument in unknown.arguments))
        return frozenset(names)

    @property
    def coefficients(self) -> tuple[Fraction, ...]:
        """The number before each term."""
        return tuple(coefficient for _, coefficient in self.terms)

    def value(self, values: Values) -> Fraction:
        """The number it stands for where every unknown has a value."""
        total = Fraction(0)
        for powers, coefficient in self.terms:
            term = coefficient
            for unknown, power in powers:
                term *= Fraction(_value_of(unknown, values)) ** power
            total += term
        return total

    def replaced(self, by: Mapping[str, Polynomial]) -> Polynomial:
        """The same with unknowns replaced; those without a replacement stay."""
        result = ZERO
        for powers, coefficient in self.terms:
            term = Polynomial.constant(coefficient)
            for unknown, power in powers:
                term *= _replaced_unknown(unknown, by) ** power
            result += term
        return result

    def divided(self, divisor: Polynomial) -> Polynomial:
        """Floor division where all unknowns are whole numbers; exact parts leave the floor."""
        if len(divisor.terms) == 1 and all(_divides(divisor.terms[0], term) for term in self.terms):
            return self * divisor**-1
        number = divisor.number
        if number is not None and number > 0:
            whole = _sum({powers: part / number for powers, part in self.terms if (part / number).denominator == 1})
            rest = (self - whole * divisor).number
            if rest is not None and rest.denominator == 1:
                return whole + Polynomial.constant(rest // number)
        return Polynomial.unknown(Function(FLOOR_DIVIDE, (self, divisor)))

    def whole_multiplier(self) -> int:
        """The smallest number that makes all coefficients whole."""
        return lcm(*(coefficient.denominator for coefficient in self.coefficients)) if self.terms else 1

    def largest_divisor(self) -> int:
        """The largest whole number that divides all coefficients; 1 where they are not whole."""
        if not self.terms or self.whole_multiplier() != 1:
            return 1
        return gcd(*(coefficient.numerator for coefficient in self.coefficients))


def _sum(terms: Mapping[Powers, Fraction]) -> Polynomial:
    kept = [(powers, coefficient) for powers, coefficient in terms.items() if coefficient]
    return Polynomial(tuple(sorted(kept, key=lambda term: _order(term[0]))))


def _order(powers: Powers) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Terms of high degree first, then by name."""
    return (-sum(power for _, power in powers), tuple((str(unknown), -power) for unknown, power in powers))


def _sorted(powers: Mapping[Unknown, int] | Mapping[str, int]) -> Powers:
    return tuple(
        sorted(((unknown, power) for unknown, power in powers.items() if power), key=lambda pair: str(pair[0]))
    )


def _merged(left: Powers, right: Powers) -> Powers:
    if not left or not right:
        return left or right
    powers = dict(left)
    for unknown, power in right:
        powers[unknown] = powers.get(unknown, 0) + power
    return _sorted(powers)


def _divides(divisor: tuple[Powers, Fraction], term: tuple[Powers, Fraction]) -> bool:
    """Whether a term is a whole multiple of a divisor."""
    powers = dict(term[0])
    return (term[1] / divisor[1]).denominator == 1 and all(
        powers.get(unknown, 0) >= power for unknown, power in divisor[0]
    )


def _value_of(unknown: Unknown, values: Values) -> int | Fraction:
    if isinstance(unknown, str):
        return values[unknown]
    return FUNCTIONS[unknown.name](*(argument.value(values) for argument in unknown.arguments))


def _replaced_unknown(unknown: Unknown, by: Mapping[str, Polynomial]) -> Polynomial:
    if isinstance(unknown, str):
        return by.get(unknown) or Polynomial.unknown(unknown)
    arguments = tuple(argument.replaced(by) for argument in unknown.arguments)
    numbers = [argument.number for argument in arguments]
    if None not in numbers:
        return Polynomial.constant(FUNCTIONS[unknown.name](*numbers))
    return Polynomial.unknown(Function(unknown.name, arguments))


ZERO = Polynomial()
ONE = Polynomial.constant(1)

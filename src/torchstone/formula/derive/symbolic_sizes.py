"""Integers that carry a polynomial: running the price of an op on them gives its formula.

A price is a plain function of whole numbers. Given sizes it computes its formula along with its value. Where it
compares sizes and the result depends on the unknowns, it runs once for each result, and the formulas are joined by a
condition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from torchstone.formula.algebra.polynomial import (
    BIT_LENGTH,
    CHOOSE,
    FLOOR_DIVIDE,
    FUNCTIONS,
    LOG2,
    MIN,
    ONE,
    Applied,
    Polynomial,
)
from torchstone.formula.derive.fit import Forms
from torchstone.record.cost import times_log2

T = TypeVar("T")

_MOST_PATHS = 16


class TooManyPathsError(Exception):
    """A price compares its sizes more often than all combinations can be run."""


@dataclass(frozen=True, slots=True)
class Condition:
    """left < right."""

    left: Polynomial
    right: Polynomial


@dataclass(slots=True)
class Path:
    """The results of the comparisons of one run: the forced ones first, then those of the concrete values."""

    forced: tuple[bool, ...] = ()
    taken: list[tuple[Condition, bool]] = field(default_factory=list)

    def answer(self, condition: Condition, *, concrete: bool) -> bool:
        """Whether left < right on this path."""
        for earlier, known in self.taken:
            if earlier == condition:
                return known
        position = len(self.taken)
        chosen = self.forced[position] if position < len(self.forced) else concrete
        self.taken.append((condition, chosen))
        return chosen


class Size(int):
    """An integer with the polynomial it is a value of; unknowns are at least 1."""

    form: Polynomial
    path: Path

    @staticmethod
    def of(value: int, form: Polynomial, path: Path) -> int:
        """A size; a form without unknowns is a plain number."""
        if form.number is not None:
            return int(value)
        size = Size(value)
        size.form, size.path = form, path
        return size

    def _with(self, value: int, form: Polynomial) -> int:
        return Size.of(value, form, self.path)

    def __add__(self, other: int) -> int:
        return self._with(int(self) + int(other), self.form + form_of(other))

    __radd__ = __add__

    def __sub__(self, other: int) -> int:
        return self._with(int(self) - int(other), self.form - form_of(other))

    def __rsub__(self, other: int) -> int:
        return self._with(int(other) - int(self), form_of(other) - self.form)

    def __mul__(self, other: int) -> int:
        return self._with(int(self) * int(other), self.form * form_of(other))

    __rmul__ = __mul__

    def __neg__(self) -> int:
        return self._with(-int(self), -self.form)

    def __floordiv__(self, other: int) -> int:
        return self._with(int(self) // int(other), self.form.divided(form_of(other)))

    def __rfloordiv__(self, other: int) -> int:
        return self._with(int(other) // int(self), form_of(other).divided(self.form))

    def __mod__(self, other: int) -> int:
        return self - (self // other) * other

    def __pow__(self, other: int, modulo: None = None) -> int:  # type: ignore[override]  # int's has more forms
        assert modulo is None  # noqa: S101 - prices take plain powers
        return self._with(int(self) ** int(other), self.form ** int(other))

    def bit_length(self) -> int:
        """The bits that the number needs."""
        return self._with(int(self).bit_length(), Polynomial.unknown(Applied(BIT_LENGTH, (self.form,))))

    def __lt__(self, other: int) -> bool:
        return self._less(self, other)

    def __gt__(self, other: int) -> bool:
        return self._less(other, self)

    def __le__(self, other: int) -> bool:
        return not self._less(other, self)

    def __ge__(self, other: int) -> bool:
        return not self._less(self, other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int):
            return False
        difference = self.form - form_of(other)
        if difference.number is not None:
            return difference.number == 0
        if _never_zero(difference):
            return False
        return not self._less(self, other) and not self._less(other, self)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self != 0

    __hash__ = int.__hash__

    def _less(self, left: int, right: int) -> bool:
        difference = form_of(right) - form_of(left)
        smallest = _smallest(difference)
        if smallest is not None and smallest > 0:
            return True
        largest = _smallest(-difference)
        if largest is not None and largest >= 0:
            return False
        return self.path.answer(Condition(form_of(left), form_of(right)), concrete=int(left) < int(right))


def form_of(value: int) -> Polynomial:
    """The polynomial of a size or of a plain number."""
    return value.form if isinstance(value, Size) else Polynomial.constant(int(value))


@times_log2.register
def _(halves: Size, number: int) -> int:
    """The cost of a Fourier transform, whose number of elements is a multiple of its length."""
    steps = Polynomial.unknown(Applied(LOG2, (form_of(number),)))
    if form_of(number).number is not None:
        steps = Polynomial.constant(FUNCTIONS[LOG2](int(number)))
    rounded = Applied(FLOOR_DIVIDE, (halves.form * steps + ONE, Polynomial.constant(2)))
    return Size.of(times_log2(int(halves), int(number)), Polynomial.unknown(rounded), halves.path)


def _smallest(form: Polynomial) -> int | None:
    """The smallest value where all unknowns are at least 1; None where the signs do not decide it."""
    powers = (power for term in form.terms for _, power in term)
    functions = any(not isinstance(unknown, str) for term in form.terms for unknown, _ in term)
    if functions or any(power < 0 for power in powers):
        return None
    constant = form.terms.get(frozenset(), 0)
    others = [part for term, part in form.terms.items() if term]
    return None if any(part < 0 for part in others) else int(constant + sum(others))


def _never_zero(difference: Polynomial) -> bool:
    smallest, largest = _smallest(difference), _smallest(-difference)
    return (smallest is not None and smallest > 0) or (largest is not None and largest > 0)


def explore(function: Callable[[Path], T], join: Callable[[Condition, T, T], T]) -> T:
    """Run a function on every path through its comparisons and join the results."""
    runs = [0]

    def follow(forced: tuple[bool, ...]) -> T:
        runs[0] += 1
        if runs[0] > _MOST_PATHS:
            raise TooManyPathsError
        path = Path(forced)
        result = function(path)
        return branch(path, result, len(forced))

    def branch(path: Path, result: T, known: int) -> T:
        """Join the result of a path with those of the opposite results of its later comparisons, the last one first."""
        for position in range(len(path.taken) - 1, known - 1, -1):
            condition, answer = path.taken[position]
            before = tuple(taken for _, taken in path.taken[:position])
            other = follow((*before, not answer))
            result = join(condition, result, other) if answer else join(condition, other, result)
        return result

    return follow(())


def join_forms(condition: Condition, smaller: Polynomial, otherwise: Polynomial) -> Polynomial:
    """One polynomial for both results; shared terms stand outside, and taking the smaller side is a min."""
    if smaller == otherwise:
        return smaller
    shared = Polynomial(dict(smaller.terms.items() & otherwise.terms.items()))
    smaller, otherwise = smaller - shared, otherwise - shared
    left, right = reduced(condition.left, condition.right)
    factor = _quotient(smaller, left)
    if factor is not None and factor == _quotient(otherwise, right):
        return shared + factor * Polynomial.unknown(Applied(MIN, (left, right)))
    return shared + Polynomial.unknown(Applied(CHOOSE, (left, right, smaller, otherwise)))


def reduced(left: Polynomial, right: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Both sides of a comparison divided by what all their terms share; all unknowns are positive."""
    terms = [dict(powers) for powers in (*left.terms, *right.terms)]
    common = {name: min(term.get(name, 0) for term in terms) for name in terms[0]} if terms else {}
    divisor = ONE
    for unknown, power in common.items():
        if power > 0:
            divisor *= Polynomial.unknown(unknown, power)
    divisor *= Polynomial.constant((left + right).largest_divisor())
    return left * divisor**-1, right * divisor**-1


def _quotient(whole: Polynomial, part: Polynomial) -> Polynomial | None:
    """The polynomial that gives the whole when multiplied by a product; None where there is none."""
    return whole * part**-1 if len(part.terms) == 1 and whole.terms else None


def join_all(condition: Condition, smaller: Forms, otherwise: Forms) -> Forms:
    """As join_forms, for FLOPs, bytes read and bytes written."""
    flops, reads, writes = (join_forms(condition, a, b) for a, b in zip(smaller, otherwise, strict=True))
    return flops, reads, writes

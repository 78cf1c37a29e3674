"""Whole numbers seen at several points -> the polynomial that gives them all, or None: never one that is merely close."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, product
from math import gcd, prod

from torchstone.formula.derive.polynomial import ONE, Polynomial

Point = Mapping[str, int]

_FEW = 5  # so many unknowns can be tried in all powers
_HIGHEST_POWER = 2
_SPARE = 2  # points beyond the unknown coefficients that a sum must also give


def fit(values: Sequence[int], points: Sequence[Point]) -> Polynomial | None:
    """The simplest polynomial through all points: a number, one term, or a short sum."""
    first = values[0]
    if all(value == first for value in values):
        return Polynomial.constant(first)
    return _one_term(values, points) or _short_sum(values, points)


def _one_term(values: Sequence[int], points: Sequence[Point]) -> Polynomial | None:
    if 0 in values:
        return None
    for powers in _candidate_powers(values, points):
        ratio = Fraction(values[0], prod(points[0][name] ** power for name, power in powers.items()))
        found = Polynomial.product(ratio, powers)
        if _gives(found, values, points):
            return found
    return None


def _candidate_powers(values: Sequence[int], points: Sequence[Point]) -> Iterator[dict[str, int]]:
    """Where sizes have no common factor, the values tell the powers; few unknowns are tried in all powers."""
    telling = [pair for pair in zip(values, points, strict=True) if pairwise_coprime(pair[1].values())]
    if telling:
        smallest = {name: min(_multiplicity(point[name], value) for value, point in telling) for name in points[0]}
        yield {name: power for name, power in smallest.items() if power}
    names = sorted(points[0])
    if len(names) <= _FEW:
        for powers in product(range(_HIGHEST_POWER + 1), repeat=len(names)):
            yield {name: power for name, power in zip(names, powers, strict=True) if power}


def pairwise_coprime(sizes: Iterable[int]) -> bool:
    """Whether no two sizes share a factor and none is 1."""
    numbers = list(sizes)
    return all(number > 1 for number in numbers) and all(gcd(a, b) == 1 for a, b in combinations(numbers, 2))


def _multiplicity(factor: int, number: int) -> int:
    count = 0
    while number % factor == 0:
        number //= factor
        count += 1
    return count


def _short_sum(values: Sequence[int], points: Sequence[Point]) -> Polynomial | None:
    for basis in _bases(sorted(points[0])):
        if len(values) < len(basis) + _SPARE:
            continue
        rows = [[term.value(point) for term in basis] for point in points]
        solved = solve(rows, [Fraction(value) for value in values])
        if solved is not None:
            found = Polynomial()
            for coefficient, term in zip(solved, basis, strict=True):
                found += Polynomial.constant(coefficient) * term
            return found
    return None


def _bases(names: Sequence[str]) -> Iterator[list[Polynomial]]:
    """Short sums, the simplest first: a + b*x, a + b*x + c*x**2, a + b*x + c*y + d*x*y."""
    unknowns = [Polynomial.unknown(name) for name in names]
    for unknown in unknowns:
        yield [ONE, unknown]
    for unknown in unknowns:
        yield [ONE, unknown, unknown * unknown]
    for left, right in combinations(unknowns, 2):
        yield [ONE, left, right, left * right]
    for three in combinations(unknowns, 3):
        yield [ONE, *three]


def solve(rows: Sequence[Sequence[Fraction]], right: Sequence[Fraction]) -> list[Fraction] | None:
    """The only solution of a system of linear equations; None where there is none, or more than one."""
    table = [[*row, value] for row, value in zip(rows, right, strict=True)]
    width = len(rows[0])
    for column in range(width):
        pivot = next((row for row in range(column, len(table)) if table[row][column]), None)
        if pivot is None:
            return None
        table[column], table[pivot] = table[pivot], table[column]
        lead = table[column]
        for row in range(len(table)):
            if row != column and table[row][column]:
                factor = table[row][column] / lead[column]
                table[row] = [a - factor * b for a, b in zip(table[row], lead, strict=True)]
    if any(row[width] for row in table[width:]):
        return None
    return [table[column][width] / table[column][column] for column in range(width)]


def _gives(found: Polynomial, values: Sequence[int], points: Sequence[Point]) -> bool:
    return all(found.value(point) == value for value, point in zip(values, points, strict=True))

"""Whole numbers at several points -> the exact polynomial through them, or None: never one that is close.

Sizes and costs are integers, so a fit is a search, not a regression. As the sizes of a point are different primes, the
powers of each size in a product can be read off by division. What is left must be a constant or a short sum, whose
coefficients come from an exact linear system with more equations than unknowns. There are no tolerances anywhere.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, islice, product
from math import prod

from torchstone.formula.algebra.polynomial import CHOOSE, Applied, Polynomial
from torchstone.formula.derive.parameter_binding import DTYPE_BYTES

Point = Mapping[str, int]

_MOST_CANDIDATES = 512
_FACTORS_TRIED = 8
_PRIME = 2**61 - 1
_SPARE = 1  # points beyond the unknown coefficients that a sum must also give
_LARGEST_DENOMINATOR = 16


def fit(values: Sequence[int], points: Sequence[Point]) -> Polynomial | None:
    """The simplest polynomial through all points: a number, one term, or a term times a short sum."""
    first = values[0]
    if all(value == first for value in values):
        return Polynomial.constant(first)
    return _one_term(values, points) or _term_times_sum(values, points)


def _term_times_sum(values: Sequence[int], points: Sequence[Point]) -> Polynomial | None:
    # (B + S) * H has no common factor but H: divide by what all values share, then look for the sum.
    for powers in islice(_candidate_powers(values, points), _FACTORS_TRIED):
        factors = [prod(point[name] ** power for name, power in powers.items()) for point in points]
        if 0 in factors:
            continue
        rest = [value // factor for value, factor in zip(values, factors, strict=True)]
        found = _short_sum(rest, points)
        if found is not None:
            return Polynomial.product(1, powers) * found
    return None


def _one_term(values: Sequence[int], points: Sequence[Point]) -> Polynomial | None:
    for powers in _candidate_powers(values, points):
        products = (prod(point[name] ** power for name, power in powers.items()) for point in points)
        ratio = next((Fraction(value, one) for value, one in zip(values, products, strict=True) if one), Fraction(0))
        found = Polynomial.product(ratio, powers)
        if _passes_through(found, values, points):
            return found
    return None


def _candidate_powers(values: Sequence[int], points: Sequence[Point]) -> Iterator[dict[str, int]]:
    """Powers that divide every value, the highest first: where sizes have no common factor, the first is right."""
    highest = {name: _highest_power(name, values, points) for name in points[0]}
    names = [name for name, power in highest.items() if power]
    if prod(highest[name] + 1 for name in names) <= _MOST_CANDIDATES:
        ranges = [range(highest[name], -1, -1) for name in names]
        for powers in sorted(product(*ranges), key=sum, reverse=True):
            yield dict(zip(names, powers, strict=True))


def _highest_power(name: str, values: Sequence[int], points: Sequence[Point]) -> int:
    """The highest power of a size that divides the value at every point; a size of 1 says nothing."""
    if any(point[name] == 0 and value for value, point in zip(values, points, strict=True)):
        return 0
    pairs = zip(values, points, strict=True)
    found = [_multiplicity(point[name], value) for value, point in pairs if point[name] > 1 and value]
    return min(found, default=0)


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
        rows = [[prod(point[name] for name in term) for term in basis] for point in points]
        # There are many bases and nearly all are wrong; arithmetic modulo a prime refutes them without fractions.
        if not _may_be_solved(rows, values):
            continue
        solved = solve([[Fraction(one) for one in row] for row in rows], [Fraction(value) for value in values])
        if solved is not None and all(part.denominator <= _LARGEST_DENOMINATOR for part in solved):
            found = Polynomial()
            for coefficient, term in zip(solved, basis, strict=True):
                found += Polynomial.product(coefficient, Counter(term))
            return found
    return None


def _bases(names: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    """The terms of short sums, the simplest first; a term is the names in its product."""
    for name in names:
        yield [(), (name,)]
    for left, right in combinations(names, 2):
        yield [(left,), (right,)]
    for name in names:
        yield [(), (name,), (name, name)]
    for left, right in combinations(names, 2):
        yield [(), (left,), (right,), (left, right)]
    for three in combinations(names, 3):
        yield [(), *((name,) for name in three)]


def _may_be_solved(rows: Sequence[Sequence[int]], right: Sequence[int]) -> bool:
    """Whether a system of equations has a solution modulo a large prime: fast, and reliable where it has none.

    (It would miss only a solution whose denominator is a multiple of the prime, which no size is.)
    """
    table = [[one % _PRIME for one in (*row, value)] for row, value in zip(rows, right, strict=True)]
    width = len(rows[0])
    for column in range(width):
        pivot = next((row for row in range(column, len(table)) if table[row][column]), None)
        if pivot is None:
            return False
        table[column], table[pivot] = table[pivot], table[column]
        lead = table[column]
        inverse = pow(lead[column], -1, _PRIME)
        for row in range(column + 1, len(table)):
            factor = table[row][column] * inverse % _PRIME
            if factor:
                table[row] = [(a - factor * b) % _PRIME for a, b in zip(table[row], lead, strict=True)]
    return not any(row[width] for row in table[width:])


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


def _passes_through(found: Polynomial, values: Sequence[int], points: Sequence[Point]) -> bool:
    return all(found.value(point) == value for value, point in zip(values, points, strict=True))


# --- One formula for all element types ---
#
# Costs are fitted for float32 and bfloat16 separately, then joined: two values determine a line in dtype_bytes.


Forms = tuple[Polynomial, Polynomial, Polynomial]  # FLOPs, bytes read, bytes written

_SINGLE = 4
_HALF = 2
_BYTES = Polynomial.unknown(DTYPE_BYTES)


def merge_dtypes(forms: Mapping[int, Forms]) -> Forms:
    """Costs by bytes of an element, as one formula; forms for one size alone stay as they are."""
    if len(forms) == 1:
        return next(iter(forms.values()))
    small, large = forms[_HALF], forms[_SINGLE]
    first, second, third = (_merge_pair(a, b) for a, b in zip(small, large, strict=True))
    return first, second, third


def _merge_pair(small: Polynomial, large: Polynomial) -> Polynomial:
    """A part that grows with dtype_bytes and a fixed part; a conditional where there is no such split."""
    if small == large:
        return small
    growing = (large - small) * Polynomial.constant(Fraction(1, _SINGLE - _HALF))
    fixed = large - growing * Polynomial.constant(_SINGLE)
    if all(part >= 0 for part in (*growing.coefficients, *fixed.coefficients)):
        return growing * _BYTES + fixed
    return Polynomial.unknown(Applied(CHOOSE, (_BYTES, Polynomial.constant(_SINGLE), small, large)))

"""The same cost measured with elements of different sizes -> one polynomial in the bytes of an element."""

from collections.abc import Mapping
from fractions import Fraction

from torchstone.formula.derive.reading import DTYPE_BYTES
from torchstone.formula.polynomial import CHOOSE, Applied, Polynomial

Forms = tuple[Polynomial, Polynomial, Polynomial]  # FLOPs, bytes read, bytes written

_SINGLE = 4
_HALF = 2
_BYTES = Polynomial.unknown(DTYPE_BYTES)


def merged(forms: Mapping[int, Forms]) -> Forms:
    """Costs by bytes of an element, as one formula; forms for one size alone stay as they are."""
    if len(forms) == 1:
        return next(iter(forms.values()))
    small, large = forms[_HALF], forms[_SINGLE]
    first, second, third = (_merged(a, b) for a, b in zip(small, large, strict=True))
    return first, second, third


def _merged(small: Polynomial, large: Polynomial) -> Polynomial:
    """A part that grows with the element and a part that does not; a choice where there is no such split."""
    if small == large:
        return small
    growing = (large - small) * Polynomial.constant(Fraction(1, _SINGLE - _HALF))
    fixed = large - growing * Polynomial.constant(_SINGLE)
    if all(part >= 0 for part in (*growing.coefficients, *fixed.coefficients)):
        return growing * _BYTES + fixed
    return Polynomial.unknown(Applied(CHOOSE, (_BYTES, Polynomial.constant(_SINGLE), small, large)))

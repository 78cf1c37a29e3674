"""Calls at several sizes -> the peak activation bytes, as a maximum of sums.

The peak cannot be fitted directly: which op is the peak depends on the sizes, so the measured peaks follow one
polynomial for long sequences and another for wide layers. What can be fitted is the memory at one op, because there the
same tensors are live at every size. So the bytes of each live tensor are fitted and added up per op. The peak is the
maximum of these sums. Sums that can never be the largest are dropped, and the rest is kept only if their maximum is the
measured peak at every point.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchstone.formula.algebra.polynomial import ZERO, Polynomial
from torchstone.formula.derive.fit import Point, merge_dtypes
from torchstone.formula.derive.observe import Moment, Place
from torchstone.formula.derive.op_forms import Fitter
from torchstone.formula.derive.parameter_binding import DTYPE_BYTES
from torchstone.formula.language.expression import Value

_FEWEST_POINTS = 3
_MOST_SUMS = 40
_FAR = 10**6  # a size next to which all others are small: shows which sum wins in the limit


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySample:
    """One call: its coordinates, the bytes of an element, and the live memory at every place."""

    point: Point
    dtype_bytes: int
    moments: Mapping[Place, Moment]

    @property
    def peak_bytes(self) -> int:
        """The largest live memory of the call."""
        return max((moment.total_bytes for moment in self.moments.values()), default=0)


def peak_sums(samples: Sequence[MemorySample]) -> tuple[Polynomial, ...] | None:
    """The sums of which the largest is the peak; None where they do not give every measured peak."""
    sums = _sums(samples)
    if not sums or len(sums) > _MOST_SUMS:
        return None
    for sample in samples:
        values = {**sample.point, DTYPE_BYTES: sample.dtype_bytes}
        if max(one.value(values) for one in sums) != sample.peak_bytes:
            return None
    return tuple(sums)


def _sums(samples: Sequence[MemorySample]) -> list[Polynomial]:
    """The live memory at each place, in one formula for all element types, without those that are never the largest.

    A place that only some calls reach must never exceed one that all calls reach: else the peak would depend on which
    code path is taken, and there is no formula.
    """
    by_bytes: dict[int, list[MemorySample]] = {}
    for sample in samples:
        by_bytes.setdefault(sample.dtype_bytes, []).append(sample)
    always = set.intersection(*(set(sample.moments) for sample in samples))
    forms: dict[int, dict[Place, Polynomial]] = {}
    for size, many in by_bytes.items():
        found = _forms(many)
        known = {place: form for place, form in found.items() if form is not None}
        common = dict.fromkeys(known[place] for place in always if place in known)
        order = _Order(many)
        for place in found:
            form = known.get(place)
            if form is None or (place not in always and not any(order.is_below(form, one) for one in common)):
                return []
        forms[size] = known
    sums = {merge_dtypes({size: (one[place],) * 3 for size, one in forms.items()})[0] for place in always}
    order = _Order(samples)
    return [one for one in sorted(sums, key=str) if not any(order.is_below(one, other) for other in sums - {one})]


def _forms(samples: Sequence[MemorySample]) -> dict[Place, Polynomial | None]:
    """The live memory at each place, for one element type; None where it was seen too rarely or is not a polynomial."""
    fitters: dict[tuple[int, ...], Fitter] = {}
    forms = {}
    for place in dict.fromkeys(place for sample in samples for place in sample.moments):
        here = tuple(number for number, sample in enumerate(samples) if place in sample.moments)
        fitter = fitters.setdefault(here, Fitter([samples[number].point for number in here]))
        forms[place] = _form([samples[number].moments[place] for number in here], fitter)
    return forms


def _form(moments: Sequence[Moment], fitter: Fitter) -> Polynomial | None:
    if len(moments) < _FEWEST_POINTS:
        return None
    total = ZERO
    for origin in sorted({origin for moment in moments for origin in moment.parts}):
        form = fitter.fit([moment.parts.get(origin, 0) for moment in moments])
        if form is None:
            return None
        total += form
    return total


class _Order:
    """Which sums are at most another one for all sizes of 1 or more."""

    def __init__(self, samples: Sequence[MemorySample]) -> None:
        ones = dict.fromkeys(samples[0].point, 1)
        sizes = {sample.dtype_bytes for sample in samples}
        far = [{**ones, name: _FAR, DTYPE_BYTES: size} for name in ones for size in sizes]
        self._points = [*far, *({**sample.point, DTYPE_BYTES: sample.dtype_bytes} for sample in samples)]
        self._known: dict[Polynomial, list[Value]] = {}

    def is_below(self, one: Polynomial, other: Polynomial) -> bool:
        """Whether the other sum is never smaller.

        The points refute most pairs quickly. The proof comes after: a polynomial without negative coefficients is never
        negative, either as it is or with every size written as 1 + x.
        """
        if any(a > b for a, b in zip(self._values(one), self._values(other), strict=True)):
            return False
        difference = other - one
        if all(coefficient >= 0 for coefficient in difference.coefficients):
            return True
        shifted = {name: Polynomial.unknown(name) + Polynomial.constant(1) for name in difference.unknowns}
        return all(coefficient >= 0 for coefficient in difference.replaced(shifted).coefficients)

    def _values(self, form: Polynomial) -> list[Value]:
        if form not in self._known:
            self._known[form] = [form.value(point) for point in self._points]
        return self._known[form]

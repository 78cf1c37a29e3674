"""Traces at several sizes -> the most bytes of activations that a model holds at one time, as a formula.

At every op the pieces of memory that are held are summed, each with its size as a polynomial; the formula is the
largest of these sums. It is kept only if it gives the measured peak at every point.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from torchstone.formula.derive.coordinates import Coordinates
from torchstone.formula.derive.element_types import merged
from torchstone.formula.derive.fitting import fit
from torchstone.formula.derive.polynomial import ZERO, Polynomial
from torchstone.formula.derive.reading import DTYPE_BYTES
from torchstone.formula.derive.template import text_of
from torchstone.record.trace import Trace

_LAYER_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_FEWEST_POINTS = 4
_MOST_SUMS = 40

Place = tuple[str, int, str]  # the module with layer numbers left open, which op in it, and its name
Point = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The memory of a trace by storage number: bytes, first and last op, and whether it holds activations."""

    sizes: Sequence[int]
    first: Sequence[int]  # negative: there before the first op
    last: Sequence[int]
    counted: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Moment:
    """What is held while one op runs, by where it was made."""

    total_bytes: int
    parts: Mapping[Place, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSample:
    """One trace: the coordinates and bytes of an element, and the fullest moment of every place."""

    point: Point
    dtype_bytes: int
    moments: Mapping[Place, Moment]

    @property
    def peak_bytes(self) -> int:
        """The most that is held at one time."""
        return max((moment.total_bytes for moment in self.moments.values()), default=0)


def model_type_behind(class_path: str) -> str:
    """The type of the models that a class of transformers belongs to."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from torchstone.formula.derive.library import model_type_of

    return model_type_of(class_path, CONFIG_MAPPING)


def held_template(samples: Sequence[HeldSample], coordinates: Coordinates) -> str | None:
    """The formula as a template; None where no sum of sizes gives every measured peak."""
    sums = _sums(samples)
    if not sums or len(sums) > _MOST_SUMS:
        return None
    for sample in samples:
        values = {**sample.point, DTYPE_BYTES: sample.dtype_bytes}
        if max(one.value(values) for one in sums) != sample.peak_bytes:
            return None
    texts = sorted({text_of(coordinates.in_parameters(one)) for one in sums})
    return texts[0] if len(texts) == 1 else f"max({', '.join(texts)})"


def fullest_moments(trace: Trace, pieces: Pieces) -> dict[Place, Moment]:
    """For each place in the code, its op call during which most is held; repeated layers are one place."""
    places = _places(trace)
    begins, ends, held = _changes(pieces, len(places))
    fullest: dict[Place, Moment] = {}
    for index, place in enumerate(places):
        held.update(begins[index])
        total = sum(pieces.sizes[storage] for storage in held)
        if place not in fullest or total >= fullest[place].total_bytes:
            fullest[place] = Moment(total, _by_origin(held, pieces, places))
        held.difference_update(ends[index])
    return fullest


def _places(trace: Trace) -> list[Place]:
    seen: dict[int, int] = {}
    places = []
    for index, row in enumerate(trace.ops.module_calls):
        seen[row] = seen.get(row, 0) + 1
        call = trace.ops[index]
        places.append((_folded(trace.module_path_of(call)), seen[row], call.op))
    return places


@cache
def _folded(path: str) -> str:
    return _LAYER_NUMBER.sub("*", path)


def _changes(pieces: Pieces, count: int) -> tuple[list[list[int]], list[list[int]], set[int]]:
    """The pieces that begin and end with each op, and those that are there before."""
    begins: list[list[int]] = [[] for _ in range(count)]
    ends: list[list[int]] = [[] for _ in range(count)]
    before = set()
    for storage, (first, last) in enumerate(zip(pieces.first, pieces.last, strict=True)):
        if not pieces.counted[storage] or not pieces.sizes[storage]:
            continue
        if first < 0:
            before.add(storage)
        elif first < count:
            begins[first].append(storage)
        if 0 <= last < count:
            ends[last].append(storage)
    return begins, ends, before


def _by_origin(held: Iterable[int], pieces: Pieces, places: Sequence[Place]) -> dict[Place, int]:
    parts: dict[Place, int] = {}
    for storage in held:
        first = pieces.first[storage]
        place = places[first] if first >= 0 else ("given", 0, "")
        parts[place] = parts.get(place, 0) + pieces.sizes[storage]
    return parts


def _sums(samples: Sequence[HeldSample]) -> list[Polynomial]:
    """What is held at each place, in one formula for all element types; what is never the largest is left out.

    A place that is not reached in every trace must never hold more than one that is; else there is no formula.
    """
    by_bytes: dict[int, list[HeldSample]] = {}
    for sample in samples:
        by_bytes.setdefault(sample.dtype_bytes, []).append(sample)
    always = set.intersection(*(set(sample.moments) for sample in samples))
    forms: dict[int, dict[Place, Polynomial]] = {}
    for size, many in by_bytes.items():
        found = {place: _form(place, many) for place in {place for sample in many for place in sample.moments}}
        known = {place: form for place, form in found.items() if form is not None}
        usual = [known[place] for place in always if place in known]
        for place in found:
            form = known.get(place)
            if form is None or (place not in always and not any(_is_below(form, one) for one in usual)):
                return []
        forms[size] = known
    sums = {merged({size: (one[place],) * 3 for size, one in forms.items()})[0] for place in always}
    return _without_smaller(sorted(sums, key=str))


def _form(place: Place, samples: Sequence[HeldSample]) -> Polynomial | None:
    """What is held at one place, for one element type; None where it is seen too rarely, or no formula gives it."""
    here = [sample for sample in samples if place in sample.moments]
    if len(here) < _FEWEST_POINTS:
        return None
    points = [sample.point for sample in here]
    total = ZERO
    for origin in sorted({origin for sample in here for origin in sample.moments[place].parts}):
        form = fit([sample.moments[place].parts.get(origin, 0) for sample in here], points)
        if form is None:
            return None
        total += form
    return total


def _without_smaller(sums: Sequence[Polynomial]) -> list[Polynomial]:
    """The sums that are not below another one for all sizes of 1 or more."""
    return [one for one in sums if not any(other != one and _is_below(one, other) for other in sums)]


def _is_below(one: Polynomial, other: Polynomial) -> bool:
    difference = other - one
    more = {name: Polynomial.unknown(name) + Polynomial.constant(1) for name in difference.unknowns}
    return all(coefficient >= 0 for coefficient in difference.replaced(more).coefficients)

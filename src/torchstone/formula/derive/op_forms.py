"""The same op call at several points -> its FLOPs and bytes as polynomials.

Sizes are fitted rather than costs: the FLOPs of attention are a long polynomial, but each tensor size is one product.
The price of an op is plain arithmetic on sizes, so running it on polynomials instead of integers gives its formula.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torchstone.formula.algebra.polynomial import Polynomial
from torchstone.formula.derive.fit import Forms, Point, fit, merge_dtypes
from torchstone.formula.derive.observe import Cost, PricedOp, with_numbers
from torchstone.formula.derive.parameter_binding import LENGTHS_AROUND
from torchstone.formula.derive.symbolic_sizes import Path, Size, TooManyPathsError, explore, form_of, join_all
from torchstone.record.op import OpSignature

Price = Callable[[OpSignature], tuple[int, int, int]]  # FLOPs, bytes read, bytes written of one call


class RefusedError(Exception):
    """There is no formula that gives every measured number; the message says where and why."""


@dataclass(slots=True)
class Fitter:
    """Fits whole numbers at a fixed list of points; equal numbers are fitted once."""

    points: Sequence[Point]
    _known: dict[tuple[int, ...], Polynomial | None] = field(default_factory=dict)

    def fit(self, values: Sequence[int]) -> Polynomial | None:
        """The polynomial through the values, None where there is none."""
        key = tuple(values)
        if key not in self._known:
            self._known[key] = self._fit(key)
        return self._known[key]

    def _fit(self, values: tuple[int, ...]) -> Polynomial | None:
        """Try without the lengths of the whole model first: a class that reads one of the two has it as S already."""
        if not LENGTHS_AROUND & self.points[0].keys():
            return fit(values, self.points)
        fewer = [{name: size for name, size in point.items() if name not in LENGTHS_AROUND} for point in self.points]
        return fit(values, fewer) or fit(values, self.points)


def op_forms(calls: Sequence[PricedOp], types: Sequence[int], fitter: Fitter, price: Price) -> Forms:
    """The cost of an op: its price at fitted sizes where that is right at every point, else its costs fitted directly.

    `types` are the bytes of an element in each call; sizes do not depend on them, costs do.
    """
    columns = list(zip(*(call.numbers for call in calls), strict=True))
    fitted = [fitter.fit(column) for column in columns]
    forms: dict[int, Forms] = {}
    for size in dict.fromkeys(types):
        chosen = [number for number, one in enumerate(types) if one == size]
        points = [fitter.points[number] for number in chosen]
        some = [calls[number] for number in chosen]
        numbers = [(column[chosen[0]], form) for column, form in zip(columns, fitted, strict=True)]
        found = None if some[0].has_list else _priced(some[0].signature, numbers, price)
        if found is None or not _right(found, some, points):
            unfitted = [column for column, form in zip(columns, fitted, strict=True) if form is None]
            found = _costs_fitted(some, Fitter(points), unfitted)
        forms[size] = found
    return merge_dtypes(forms)


def _priced(signature: OpSignature, fitted: Sequence[tuple[int, Polynomial | None]], price: Price) -> Forms | None:
    """The price at fitted sizes; a number without a fit, such as the index of a padding token, stays a constant."""

    def run(path: Path) -> Forms:
        sizes = iter([value if form is None else Size.of(value, form, path) for value, form in fitted])
        flops, reads, writes = price(with_numbers(signature, lambda _: next(sizes)))
        return form_of(flops), form_of(reads), form_of(writes)

    try:
        return explore(run, join_all)
    except (TooManyPathsError, ValueError, IndexError):  # leading sizes may be merged, which not every price can read
        return None


def _costs_fitted(calls: Sequence[PricedOp], fitter: Fitter, unfitted: Sequence[Sequence[int]]) -> Forms:
    sizes = "; ".join(_shown(column) for column in unfitted[:2])
    forms = []
    for quantity in ("flops", "reads", "writes"):
        values = [getattr(call.cost, quantity) for call in calls]
        form = fitter.fit(values)
        if form is None:
            op = calls[0].signature.op
            why = f", and neither is a size of it ({sizes})" if sizes else ""
            msg = f"the {quantity} of {op} ({_shown(values)}) are not a polynomial of the parameters{why}"
            raise RefusedError(msg)
        forms.append(form)
    return forms[0], forms[1], forms[2]


def _shown(values: Sequence[int]) -> str:
    return ", ".join(map(str, values[:4])) + (", ..." if len(values) > 4 else "")  # noqa: PLR2004 - enough to see it


def _right(forms: Forms, calls: Sequence[PricedOp], points: Sequence[Point]) -> bool:
    return all(cost_of(forms, point) == call.cost for call, point in zip(calls, points, strict=True))


def cost_of(forms: Forms, point: Point) -> Cost | None:
    """The numbers at one point; None where they are not whole."""
    flops, reads, writes = (form.value(point) for form in forms)
    if any(number.denominator != 1 for number in (flops, reads, writes)):
        return None
    return Cost(flops=int(flops), reads=int(reads), writes=int(writes))

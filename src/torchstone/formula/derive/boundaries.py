"""The sizes at which a module changes its code path, read from a run with symbolic sizes.

torch records a guard for every comparison of a symbolic size: `if x.shape[1] % 2 == 0` leaves `Eq(Mod(s1, 2), 0)`.
Each guard becomes a coordinate that is 1 where it holds and 0 elsewhere, so that the calls on either side are derived
separately. Rounded quotients among the sizes of tensors become coordinates too: the output of a strided convolution is
a product of those, and not a polynomial of the input.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

import sympy
import torch
from torch import Tensor, nn
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

from torchstone.foreign import foreign_code
from torchstone.formula.algebra.polynomial import (
    BIT_LENGTH,
    CHOOSE,
    EQUAL,
    FLOOR_DIVIDE,
    MIN,
    MODULO,
    ONE,
    ZERO,
    Applied,
    Polynomial,
)
from torchstone.formula.derive.coordinates import CONDITION
from torchstone.formula.derive.fit import fit

Build = Callable[[Mapping[str, int]], tuple[nn.Module, object]]  # sizes -> module and inputs

_MOST_BOUNDARIES = 6  # more would need too many points: each one doubles the code paths
_MOST_SIZES = 10
_RARE = 0.1  # share of sizes below which a code path is left out of the domain
_TRIED, _LARGEST_DRAWN, _LARGEST_TRIED = 80, 150, 2048  # sizes at which conditions are compared
_ROUNDED = "FloorDiv"
_FEWEST_DOUBLINGS = 2  # powers of two whose double is compared as well
_SMALLEST_SYMBOL = 2  # torch takes sizes of 0 and 1 as constants


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundaries:
    """Where code paths may change, as polynomials of the sizes."""

    conditions: tuple[Polynomial, ...] = ()  # each is 1 where a comparison of the code holds, else 0
    edges: tuple[Polynomial, ...] = ()  # each is 1 where a size of a tensor has one special value, such as 1, else 0
    quotients: tuple[Polynomial, ...] = ()  # rounded quotients, minima and maxima that are sizes of tensors
    complete: bool = False  # every run with symbolic sizes went through, and no size was taken as a constant
    reason: str = ""  # why it is not complete

    def joined(self, other: "Boundaries") -> "Boundaries":
        """All boundaries of both."""
        return Boundaries(
            conditions=_first(_MOST_BOUNDARIES, (*self.conditions, *other.conditions)),
            edges=tuple(dict.fromkeys((*self.edges, *other.edges))),
            quotients=_first(_MOST_SIZES, (*self.quotients, *other.quotients)),
            complete=self.complete and other.complete,
            reason=self.reason or other.reason,
        )

    @property
    def coordinates(self) -> dict[str, Polynomial]:
        """The boundaries as named coordinates."""
        named = {f"{CONDITION}{number}": form for number, form in enumerate(self.conditions)}
        return {**named, **{f"quotient_{number}": form for number, form in enumerate(self.quotients)}}

    @property
    def numbers(self) -> frozenset[int]:
        """The constants that sizes are compared with or divided by."""
        return frozenset(number for form in (*self.conditions, *self.quotients) for number in constants_in(form))


NO_BOUNDARIES = Boundaries()
_SMALL = 9


def constants_in(form: Polynomial) -> Iterator[int]:
    """The whole numbers in a polynomial, also inside its functions."""
    for monomial, factor in form.terms.items():
        if factor.denominator == 1 and abs(int(factor)) > 1:
            yield abs(int(factor))
        for atom, _ in monomial:
            if isinstance(atom, Applied):
                for argument in atom.arguments:
                    yield from constants_in(argument)


def _first(limit: int, forms: Iterable[Polynomial]) -> tuple[Polynomial, ...]:
    return tuple(dict.fromkeys(forms))[:limit]


def find_boundaries(
    build: Build, points: Sequence[Mapping[str, int]], place: Callable[[Mapping[str, int]], dict[str, int]] = dict
) -> Boundaries:
    """Run a module with symbolic sizes at several points, and read the comparisons and quotients of its sizes.

    The values at each point must be different numbers, since a size is recognized by its value. Constants are compared
    between points: one that changes with a size is that size, as in `x.shape[1] > self.window`. `place` makes sizes
    that the module takes from any.
    """
    runs = [_run(build, point) for point in points]
    failed = next((run.failure for run in runs if run.failure), "")
    lifted = [one for one in _lifted([run.guards for run in runs], points, _condition) if one.number is None]
    compared = [one for one in lifted if _is_defined(one)]
    counts = _lifted([run.counts for run in runs], points, _polynomial)
    steps = [one for form in counts for one in _steps(form)]
    doubled = _doubled(compared)
    numbers = {number for _, number in steps}  # comparisons with these are about this number of steps alone
    compared = [one for one in compared if not _is_doubling_of(one, doubled) and not numbers & set(constants_in(one))]
    at_steps = [form for step in steps for form in _conditions_of_steps(*step)]
    failed = failed or ("" if all(map(_is_defined, lifted)) else "a comparison divides by what is 0 at small sizes")
    varied = _distinguishing([*at_steps, *compared], points, place)
    conditions = [one for one, share in varied if not _is_edge(one) or share > _RARE]
    edges = [one for one, share in varied if _is_edge(one) and share <= _RARE and not _holds_at(one, points)]
    quotients = [
        *counts,
        *(ceil_log2_of(name) for name in doubled),
        *(form for name, number in steps for form in _parts_of_steps(name, number)),
        *map(_with_shift_inside, _lifted([run.sizes for run in runs], points, _polynomial)),
    ]
    quotients = list(filter(_is_defined, quotients))
    return Boundaries(
        conditions=_first(_MOST_BOUNDARIES, conditions),
        edges=tuple(edges),
        quotients=_first(_MOST_SIZES, (one for one, _ in _distinguishing(quotients, points, place, mirrored=False))),
        complete=not failed and not counts and not doubled and len(conditions) <= _MOST_BOUNDARIES,
        reason=failed or ("the number of steps depends on the sizes" if counts or doubled else ""),
    )


def _distinguishing(
    forms: Iterable[Polynomial],
    points: Sequence[Mapping[str, int]],
    place: Callable[[Mapping[str, int]], dict[str, int]],
    *,
    mirrored: bool = True,
) -> list[tuple[Polynomial, float]]:
    """The forms that vary over ordinary sizes, each once, with the share of sizes at which they are not 0.

    Most guards are about strides and hold at all sizes, or say again what an earlier one says.
    """
    listed = [one for one in dict.fromkeys(forms) if one.number is None]
    numbers = {number for one in listed for number in constants_in(one) if number <= _LARGEST_TRIED}
    near = sorted({max(2, scale * one + shift) for one in numbers for shift in (-1, 0, 1) for scale in (1, 2, 5)})
    random = Random(0)  # noqa: S311 - not for secrets
    drawn = [{name: random.randint(2, _LARGEST_DRAWN) for name in points[0]} for _ in range(_TRIED)]
    close = [{name: random.choice((*near, size)) for name, size in sizes.items()} for sizes in drawn]
    tried = [place(sizes) for sizes in (*drawn, *close)]
    found: dict[tuple[int | Fraction | None, ...], tuple[Polynomial, float]] = {}
    for form in listed:
        values = tuple(_value_at(form, sizes) for sizes in tried)
        known = [value for value in values if value is not None]
        ordinary = values[:_TRIED]
        opposite = tuple(None if value is None else 1 - value for value in values)
        if len(set(known)) > 1 and values not in found and not (mirrored and opposite in found):
            found[values] = (form, sum(value not in (0, None) for value in ordinary) / _TRIED)
    return list(found.values())


def _is_defined(form: Polynomial) -> bool:
    """Whether a form has a value at small sizes; one that divides by S // 8 cannot be a part of a formula."""
    return all(_value_at(form, dict.fromkeys(form.unknowns, size)) is not None for size in range(1, _SMALL))


def _value_at(form: Polynomial, sizes: Mapping[str, int]) -> int | Fraction | None:
    try:
        return form.value(sizes)
    except ZeroDivisionError:
        return None


def _holds_at(condition: Polynomial, points: Sequence[Mapping[str, int]]) -> bool:
    """Whether a comparison holds where it was seen: the other sizes are then those that were not seen."""
    return all(_value_at(condition, point) == 1 for point in points)


def _steps(count: Polynomial) -> Iterator[tuple[str, int]]:
    """The size and the number of tokens in each step, of the number of steps of a loop: 32 in (S + 31) // 32."""
    for monomial in count.terms:
        for atom, _ in monomial:
            if isinstance(atom, Applied) and atom.name == FLOOR_DIVIDE and atom.arguments[1].number is not None:
                for name in sorted(atom.arguments[0].unknowns):
                    yield name, int(atom.arguments[1].number)


def remainder_is_zero(name: str, number: int) -> Polynomial:
    """1 where a size is a multiple of a number, else 0."""
    rest = Applied(MODULO, (Polynomial.unknown(name), Polynomial.constant(number)))
    return _is_less(Polynomial.unknown(rest), ONE)


def _conditions_of_steps(name: str, number: int) -> tuple[Polynomial, ...]:
    """Where the last step is a whole one, where it has a single element, and where there is no whole step."""
    size, step = Polynomial.unknown(name), Polynomial.constant(number)
    one_left = Applied(EQUAL, (Polynomial.unknown(Applied(MODULO, (size, step))), ONE))
    return remainder_is_zero(name, number), _is_less(size, step), Polynomial.unknown(one_left)


def ceil_log2_of(name: str) -> Polynomial:
    """The rounds of a loop that doubles its step until it reaches a size."""
    return Polynomial.unknown(Applied(BIT_LENGTH, (Polynomial.unknown(name) - ONE,)))


def _doubled(conditions: Iterable[Polynomial]) -> list[str]:
    """Sizes that are compared with several powers of two in a row: with the step of a loop that doubles it."""
    limits: dict[str, set[int]] = {}
    for condition in conditions:
        for name, limit in _threshold(condition):
            limits.setdefault(name, set()).add(limit)
    return [name for name, found in limits.items() if sum(2 * one in found for one in found) >= _FEWEST_DOUBLINGS]


def _is_doubling_of(condition: Polynomial, names: Collection[str]) -> bool:
    return any(name in names and limit & (limit - 1) == 0 for name, limit in _threshold(condition))


def _threshold(condition: Polynomial) -> Iterator[tuple[str, int]]:
    """The size and the number of a comparison `size < number` or `number < size`."""
    ((monomial, _),) = condition.terms.items()
    ((atom, _),) = monomial
    if isinstance(atom, Applied) and atom.name == CHOOSE:
        left, right = atom.arguments[:2]
        for size, limit in ((left, right.number), (right, left.number)):
            names = [name for name in size.unknowns if size == Polynomial.unknown(name)]
            if names and limit is not None and limit.denominator == 1 and limit > 0:
                yield names[0], int(limit)


def _parts_of_steps(name: str, number: int) -> tuple[Polynomial, Polynomial]:
    """Whole steps, and what is left for the last one."""
    size, step = Polynomial.unknown(name), Polynomial.constant(number)
    return size.divided(step), Polynomial.unknown(Applied(MODULO, (size, step)))


def _with_shift_inside(form: Polynomial) -> Polynomial:
    """(H - 1) // 2 + 1 as (H + 1) // 2: a product of such sizes is then one term of the coordinates."""
    shift = form.terms.get(frozenset())
    rest = [(monomial, factor) for monomial, factor in form.terms.items() if monomial]
    if shift is None or len(rest) != 1 or rest[0][1] != 1 or len(rest[0][0]) != 1:
        return form
    ((atom, power),) = rest[0][0]
    if power != 1 or not isinstance(atom, Applied) or atom.name != FLOOR_DIVIDE:
        return form
    above, below = atom.arguments
    return (above + below * Polynomial.constant(shift)).divided(below)


def _is_edge(condition: Polynomial) -> bool:
    """Whether it compares what is computed from sizes with a number: few sizes on that side are excluded."""
    ((monomial, _),) = condition.terms.items()
    ((atom, _),) = monomial
    if not isinstance(atom, Applied) or atom.name != EQUAL:
        return False
    numbers = [one for one in atom.arguments if one.number is not None]
    return bool(numbers) and (numbers[0] == ONE or not any(_is_plain(one) for one in atom.arguments))


def _is_plain(form: Polynomial) -> bool:
    return any(form == Polynomial.unknown(name) for name in form.unknowns)


# --- One run ---


@dataclass(slots=True)
class _Run:
    guards: list[sympy.Basic] = field(default_factory=list)
    sizes: list[sympy.Basic] = field(default_factory=list)
    counts: list[sympy.Basic] = field(default_factory=list)  # rounded quotients that are equal to a plain number here
    failure: str = ""


def _run(build: Build, point: Mapping[str, int]) -> _Run:
    """One run with every size of the point as a symbol; what was seen before a failure is kept."""
    run = _Run()
    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    sizes = _Sizes()
    with foreign_code() as ran, _quiet(), torch.no_grad():  # torch and modules raise anything where they need values
        module, inputs = build(point)
        given = _arguments(inputs)
        args, kwargs = tree_map_only(Tensor, lambda one: _symbolic(mode, one, point), given)
        own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        fake = {name: _symbolic(mode, one, point) for name, one in own.items()}
        with enable_python_dispatcher(), mode, sizes:
            torch.func.functional_call(module.eval(), fake, args, kwargs)
    if ran.error is not None:
        run.failure = f"{type(ran.error).__name__}: {' '.join(str(ran.error).split())[:160]}"
    names = _names(environment, point)
    run.guards = _named((guard.expr for guard in environment.guards), names)
    run.sizes = _named(sizes.quotients, names)
    run.counts = [
        one.args[0]
        for one in run.guards
        if isinstance(one, sympy.Eq)
        and isinstance(one.args[1], sympy.Integer)
        and type(one.args[0]).__name__ == _ROUNDED
    ]
    if not run.failure:
        run.failure = _specialized(environment)
    return run


def _specialized(environment: ShapeEnv) -> str:
    """Which sizes were read as plain numbers, so that what was done with them is not known; "" for none."""
    fixed = [str(symbol) for symbol, value in environment.replacements.items() if isinstance(value, sympy.Integer)]
    return f"{len(fixed)} sizes are read as plain numbers" if fixed else ""


def _symbolic(mode: FakeTensorMode, tensor: Tensor, point: Mapping[str, int]) -> Tensor:
    known = {value for value in point.values() if value >= _SMALLEST_SYMBOL}
    dynamic = [DimDynamic.DUCK if size in known else DimDynamic.STATIC for size in tensor.shape]
    context: StatelessSymbolicContext[..., object] = StatelessSymbolicContext(dynamic_sizes=dynamic)
    return mode.from_tensor(tensor, symbolic_context=context, static_shapes=False)


def _arguments(inputs: object) -> tuple[tuple[object, ...], dict[str, object]]:
    """Positional and named arguments, from what a recipe or an architecture gives."""
    if hasattr(inputs, "args") and hasattr(inputs, "kwargs"):
        return tuple(inputs.args), dict(inputs.kwargs)
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that torch logs about its own guards."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


class _Sizes(TorchDispatchMode):
    """Collects the sizes of all results that are not sums of products."""

    def __init__(self) -> None:
        super().__init__()
        self.quotients: dict[sympy.Basic, None] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run an op and look at the sizes of its results."""
        del types
        result = func(*args, **(kwargs or {}))
        for tensor in tree_iter(result):
            if isinstance(tensor, Tensor):
                sizes: tuple[int | torch.SymInt, ...] = tensor.shape  # torch declares int, but these are symbolic
                for size in sizes:
                    if isinstance(size, torch.SymInt):
                        self._note(size.node.expr)
        return result

    def _note(self, size: sympy.Basic) -> None:
        if isinstance(size, sympy.Add) and any(type(part).__name__ == _ROUNDED for part in size.args):
            self.quotients.setdefault(size)
            return
        for part in sympy.preorder_traversal(size):
            if type(part).__name__ in _QUOTIENTS:
                self.quotients.setdefault(part)


_QUOTIENTS = frozenset(
    {"FloorDiv", "CleanDiv", "Mod", "PythonMod", "Max", "Min", "CeilToInt", "FloorToInt", "TruncToInt"}
)


def _names(environment: ShapeEnv, point: Mapping[str, int]) -> dict[sympy.Symbol, sympy.Symbol]:
    """Each symbol of torch -> a symbol with the name of the size; by value, since all values differ."""
    by_value = {value: name for name, value in point.items()}
    current = "backed_var_to_val"  # older versions of torch name it var_to_val
    hints = getattr(environment, current if hasattr(environment, current) else "var_to_val")
    return {
        symbol: sympy.Symbol(by_value[int(value)], integer=True, positive=True)
        for symbol, value in hints.items()
        if int(value) in by_value
    }


def _named(found: Iterable[sympy.Basic], names: Mapping[sympy.Symbol, sympy.Symbol]) -> list[sympy.Basic]:
    renamed = (one.xreplace(dict(names)) for one in found)
    known = set(names.values())
    return [one for one in renamed if one.free_symbols and one.free_symbols <= known]


# --- Expressions of torch -> polynomials of the sizes, constants compared between the points ---


class _NotLiftedError(Exception):
    """An expression that the formula language has no words for, or that differs between the points."""


_TRUE_DIVISION = "true division"
_Lift = Callable[[Sequence[sympy.Basic], Sequence[Mapping[str, int]]], Polynomial]


def _lifted(
    found: Sequence[Sequence[sympy.Basic]], points: Sequence[Mapping[str, int]], lift: _Lift
) -> list[Polynomial]:
    """Expressions of the same form in all runs, as one polynomial each."""
    by_form: list[dict[tuple[str, int], sympy.Basic]] = []
    for expressions in found:
        table: dict[tuple[str, int], sympy.Basic] = {}
        for one in dict.fromkeys(expressions):
            masked = _form(one)
            number = sum(key[0] == masked for key in table)
            table[masked, number] = one
        by_form.append(table)
    lifted: list[Polynomial] = []
    for key in dict.fromkeys(key for table in by_form for key in table):
        seen = [(table[key], point) for table, point in zip(by_form, points, strict=True) if key in table]
        try:
            form = lift([one for one, _ in seen], [point for _, point in seen])
        except _NotLiftedError:
            continue
        if _TRUE_DIVISION not in str(form):
            lifted.append(form)
    return list(dict.fromkeys(lifted))


def _form(expression: sympy.Basic) -> str:
    """The expression with its numbers masked."""
    if isinstance(expression, sympy.Integer):
        return "#"
    if isinstance(expression, sympy.Symbol):
        return str(expression)
    return f"{type(expression).__name__}({','.join(_form(part) for part in _parts(expression))})"


def _parts(expression: sympy.Basic) -> list[sympy.Basic]:
    if isinstance(expression, sympy.Add | sympy.Mul):  # their order depends on the values
        return sorted(expression.args, key=_form)
    return list(expression.args)


def _condition(expressions: Sequence[sympy.Basic], points: Sequence[Mapping[str, int]]) -> Polynomial:
    """A comparison as 1 where it holds or where it does not: either separates the two sides."""
    first = expressions[0]
    if isinstance(first, sympy.Not):
        return _condition([one.args[0] for one in expressions], points)
    if len(first.args) != 2:  # noqa: PLR2004 - two sides of a comparison
        raise _NotLiftedError
    left, right = (_polynomial([one.args[side] for one in expressions], points) for side in range(2))
    if left == right:  # a size that was read as a plain number
        raise _NotLiftedError
    match first:
        case sympy.Eq() | sympy.Ne():
            remainder = _sole_remainder(left - right)
            return (
                _is_less(remainder, ONE) if remainder is not None else Polynomial.unknown(Applied(EQUAL, (left, right)))
            )
        case sympy.StrictLessThan() | sympy.GreaterThan():
            return _is_less(left, right)
        case sympy.StrictGreaterThan() | sympy.LessThan():
            return _is_less(right, left)
        case _:
            raise _NotLiftedError


def _sole_remainder(form: Polynomial) -> Polynomial | None:
    """A remainder that is compared with 0."""
    if len(form.terms) != 1:
        return None
    ((monomial, factor),) = form.terms.items()
    atoms = list(monomial)
    is_one = len(atoms) == 1 and isinstance(atoms[0][0], Applied) and atoms[0][0].name == MODULO
    return Polynomial.unknown(atoms[0][0]) if is_one and abs(factor) == 1 else None


def _is_less(left: Polynomial, right: Polynomial) -> Polynomial:
    return Polynomial.unknown(Applied(CHOOSE, (left, right, ONE, ZERO)))


def _polynomial(expressions: Sequence[sympy.Basic], points: Sequence[Mapping[str, int]]) -> Polynomial:
    first = expressions[0]
    if all(isinstance(one, sympy.Integer) for one in expressions):
        return _number([int(one) for one in expressions], points)
    if isinstance(first, sympy.Symbol):
        return Polynomial.unknown(str(first))
    columns = list(zip(*(_parts(one) for one in expressions), strict=False))
    parts = [_polynomial(column, points) for column in columns]
    return _applied(type(first).__name__, first, parts)


def _number(values: Sequence[int], points: Sequence[Mapping[str, int]]) -> Polynomial:
    if len(set(values)) == 1:
        return Polynomial.constant(values[0])
    found = fit([abs(one) for one in values], points)
    if found is None or not (all(one > 0 for one in values) or all(one < 0 for one in values)):
        raise _NotLiftedError
    return found if values[0] > 0 else -found


def _applied(name: str, first: sympy.Basic, parts: Sequence[Polynomial]) -> Polynomial:
    """A function of sympy or torch, applied to polynomials."""
    if name in ("Add", "Mul", "Pow"):
        return _arithmetic(name, first, parts)
    match name, parts:
        case (("FloorDiv" | "CleanDiv"), [above, below]):
            return above.divided(below)
        case (("Mod" | "PythonMod" | "Min"), [left, right]):
            return Polynomial.unknown(Applied(MIN if name == "Min" else MODULO, (left, right)))
        case "Max", [left, right]:
            return Polynomial.unknown(Applied(CHOOSE, (left, right, right, left)))
        case (("CeilToInt" | "FloorToInt" | "TruncToInt"), _):
            return _rounded(name, first, parts)
        case (("IntTrueDiv" | "FloatTrueDiv"), [above, below]):
            return Polynomial.unknown(Applied(_TRUE_DIVISION, (above, below)))  # rounded by what stands around it
        case (("ToFloat" | "Identity"), [part]):
            return part
        case _:
            raise _NotLiftedError


def _arithmetic(name: str, first: sympy.Basic, parts: Sequence[Polynomial]) -> Polynomial:
    if name == "Add":
        return Polynomial.total(parts)
    if name == "Mul":
        product = ONE
        for part in parts:
            product *= part
        return product
    exponent = first.args[1]
    if not isinstance(exponent, sympy.Integer) or int(exponent) < 1:
        raise _NotLiftedError
    return parts[0] ** int(exponent)


def _rounded(name: str, first: sympy.Basic, parts: Sequence[Polynomial]) -> Polynomial:
    """A true division that was rounded: math.ceil(length / 16)."""
    inside = first.args[0]
    if type(inside).__name__ not in ("IntTrueDiv", "FloatTrueDiv") or len(parts) != 1:
        raise _NotLiftedError
    ((monomial, factor),) = parts[0].terms.items()
    ((atom, _),) = monomial
    if not isinstance(atom, Applied) or atom.name != _TRUE_DIVISION or factor != 1:
        raise _NotLiftedError
    above, below = atom.arguments
    return (above + below - ONE).divided(below) if name == "CeilToInt" else above.divided(below)

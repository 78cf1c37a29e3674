"""Expected and actual outputs -> whether they agree, and how far they are apart.

`compare` judges one tensor, `judge` everything that a module returned. Whether a tensor agrees is decided by
`apply_rule` and nowhere else. The rule divides the error by the noise that a correct implementation in the same number
format would have: up to `SUSPICIOUS_ABOVE` times the noise is passed, beyond `WRONG_ABOVE` times is wrong. Tolerances
that the user asks for, such as a minimum PCC, decide in its place.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from torchstone.numerics.compare import Errors, as_dense, measure
from torchstone.numerics.dtypes import dtype_name, kind_of
from torchstone.numerics.expected import Evidence
from torchstone.numerics.noise_floor import Multiple, assumed_floor, deviation, floor_of, multiple_of
from torchstone.numerics.number_formats import float_format, half_range, spacing
from torchstone.numerics.padding import selected
from torchstone.numerics.profiles import SUSPICIOUS_ABOVE, WRONG_ABOVE
from torchstone.numerics.pytree import leaves
from torchstone.numerics.tolerance import (
    NO_OPTIONS,
    OptionsLike,
    Tolerance,
    ToleranceOptions,
    read_options,
    tolerance_for,
)

_RARE_FLIPS = 0.1  # of the integers that differ: a value close to a threshold need not cross it in the runs with noise
_MOST = 1e30  # times the noise: JSON has no infinity
PASSED, SUSPICIOUS, WRONG = "passed", "suspicious", "wrong"  # the states of a verdict
_WORST = {
    "noise_multiple": max,
    "pcc": min,
    "cosine": min,
    "relative_l2": max,
    "max_abs": max,
    "max_rel": max,
    "max_ulp": max,
}


class Status(Enum):
    """How the comparison of one output ended."""

    PASSED = "passed"
    SUSPICIOUS = "suspicious"  # more than the noise explains, but not enough to call it wrong
    WRONG_VALUES = "wrong values"
    WRONG_NON_FINITE = "wrong NaN or Inf"
    WRONG_SHAPE = "wrong shape"
    WRONG_DTYPE = "wrong dtype"  # another kind of number; another width is only reported
    WRONG_TYPE = "wrong type"  # a tensor on one side, something else on the other
    MISSING = "missing"
    NOT_EXPECTED = "not expected"


PASSING = (Status.PASSED, Status.SUSPICIOUS)


@dataclass(frozen=True)
class Noise:
    """An error in multiples of the noise, and what the noise was taken from."""

    multiple: float
    measure: str  # which measure of the error is the largest multiple
    relative_error: float | None  # of the float64 values
    relative_noise: float | None
    format: str  # the number format that the candidate was judged in
    basis: str  # measured, scaled from another format, or assumed


@dataclass(frozen=True)
class Verdict:
    """What was found about one tensor: every metric, and what it was judged by."""

    status: Status
    reason: str = ""  # why it is wrong, or what is worth knowing about one that passed
    errors: Errors | None = None  # None where the shapes differ
    tolerance: Tolerance | None = None  # None where the noise decided
    noise: Noise | None = None  # None for what has no noise: integers, other shapes

    @property
    def passed(self) -> bool:
        """Whether the tensors agree; a suspicious one does, and is worth a look."""
        return self.status in PASSING


@dataclass(frozen=True)
class Known:
    """What is known about a tensor beside its expected values."""

    evidence: Evidence | None = None  # None: the noise is assumed from the dtype
    path: str = ""  # under which the evidence has it
    number_format: str = ""  # what the candidate was computed in, where its dtype does not say so, as for integers

    def counted(self, shape: Sequence[int]) -> Tensor | None:
        """The leading positions that decide; None: all of them."""
        return None if self.evidence is None else self.evidence.counted(self.path, shape)


NOTHING_KNOWN = Known()


def compare(
    expected: Tensor,
    actual: Tensor,
    options: ToleranceOptions = NO_OPTIONS,
    known: Known = NOTHING_KNOWN,
) -> Verdict:
    """Judge one tensor. A shape or a kind of number that differs is a mismatch; nothing is broadcast."""
    if expected.shape != actual.shape:
        return Verdict(Status.WRONG_SHAPE, f"shape {list(actual.shape)} instead of {list(expected.shape)}")
    wanted, given = dtype_name(expected.dtype), dtype_name(actual.dtype)
    tolerance = tolerance_for(wanted, given, options)
    positions = known.counted(expected.shape)
    with torch.no_grad():
        errors = _measure(expected, actual, tolerance, positions)
        other_dtype = "" if wanted == given else f"{given} instead of {wanted}"
        if kind_of(wanted) != kind_of(given):
            return Verdict(Status.WRONG_DTYPE, other_dtype, errors, tolerance)
        noise = None if tolerance.exact or errors.misplaced else _noise(expected, actual, errors, known)
        asked = tolerance if options.asked(wanted) else None
        status, reason = apply_rule(errors, noise, asked)
        if status is Status.WRONG_VALUES and tolerance.exact:
            status, reason = _judge_integers(expected, actual, known, reason)
        if status in (Status.WRONG_VALUES, Status.SUSPICIOUS) and asked is None:
            status, reason = _judge_draws(expected, actual, known, status, reason)
    if status in PASSING:
        padded = "" if positions is None else _padding_in_words(expected, actual, tolerance, positions)
        reason = "; ".join(filter(None, (other_dtype, reason, padded)))
    return Verdict(status, reason, errors, asked or (tolerance if tolerance.exact else None), noise)


def _measure(expected: Tensor, actual: Tensor, tolerance: Tolerance, positions: Tensor | None) -> Errors:
    if positions is None:
        return measure(expected, actual, rtol=tolerance.rtol, atol=tolerance.atol)
    expected, actual = (selected(as_dense(one), positions) for one in (expected, actual))
    found = measure(expected, actual, rtol=tolerance.rtol, atol=tolerance.atol)
    if found.worst_at is None:
        return found
    place, *rest = found.worst_at
    return replace(found, worst_at=(*positions.nonzero()[place].tolist(), *rest))


def _padding_in_words(expected: Tensor, actual: Tensor, tolerance: Tolerance, tokens: Tensor) -> str:
    """How far the padding positions are off, which does not decide."""
    left, right = (selected(as_dense(one), ~tokens) for one in (expected, actual))
    found = measure(left, right, rtol=tolerance.rtol, atol=tolerance.atol)
    error = "unknown" if found.relative_l2 is None else f"{found.relative_l2:.2g}"
    words = "equal" if found.equal else f"relative L2 error {error}"
    words += f", {found.misplaced} NaN or Inf in one of the two" if found.misplaced else ""
    return f"{int((~tokens).sum())} padding positions do not decide ({words})"


def apply_rule(errors: Errors, noise: Noise | None, asked: Tolerance | None) -> tuple[Status, str]:
    """The rule: NaN and Inf at the same places; integers equal; the error within a few times the noise.

    `asked` has the tolerances of a user who wants to decide by them; None: the noise decides.
    """
    if errors.misplaced:
        where = f"first at {list(errors.worst_at or ())}"
        return Status.WRONG_NON_FINITE, f"{errors.misplaced} elements are NaN or infinite in one of the two, {where}"
    if noise is None:
        passed = errors.max_abs in (None, 0.0)
        return (Status.PASSED, "") if passed else (Status.WRONG_VALUES, "integers and booleans must be equal")
    if asked is not None:
        return _apply_tolerance(errors, asked)
    if noise.multiple <= SUSPICIOUS_ABOVE:
        return Status.PASSED, ""
    return (Status.SUSPICIOUS if noise.multiple <= WRONG_ABOVE else Status.WRONG_VALUES), _in_words(noise)


def _in_words(noise: Noise) -> str:
    size = "" if noise.relative_error is None else f"relative error {noise.relative_error:.2g}, "
    explains = noise.format if noise.basis == "measured" else f"{noise.format} ({noise.basis})"
    by = "" if noise.measure == "RMS" else f" (by its {noise.measure})"
    return f"{size}{noise.multiple:.3g} times what {explains} explains{by}"


def _apply_tolerance(errors: Errors, tolerance: Tolerance) -> tuple[Status, str]:
    """PCC and relative L2 error within what the user asked for.

    Where there is no PCC (a constant or a single element), allclose decides. The relative L2 error of values that are
    close element by element does not count: values around 0 may be all rounding.
    """
    if errors.pcc is None:
        if errors.allclose:
            return Status.PASSED, f"no PCC ({errors.pcc_reason}): judged by allclose"
        return Status.WRONG_VALUES, f"no PCC ({errors.pcc_reason}), and not close"
    if errors.pcc < tolerance.pcc:
        return Status.WRONG_VALUES, f"PCC {errors.pcc:.6g} is below {tolerance.pcc:g}"
    apart = errors.relative_l2
    if apart is not None and apart > tolerance.relative_l2 and not errors.allclose:
        return Status.WRONG_VALUES, f"relative L2 error {apart:.3g} is above {tolerance.relative_l2:.3g}"
    return Status.PASSED, ""


def _noise(expected: Tensor, actual: Tensor, errors: Errors, known: Known) -> Noise:
    number_format = known.number_format or _coarser(float_format(expected.dtype), float_format(actual.dtype))
    if errors.equal:
        return Noise(0.0, "equal bits", 0.0, None, number_format, "equal bits")
    limit = half_range(expected.dtype)
    expected, actual = _widened(expected), _widened(actual)
    positions = known.counted(expected.shape)
    evidence = known.evidence
    exact = evidence.float64(known.path) if evidence is not None else None
    if _beyond_differs(expected, actual, limit, positions):
        return Noise(_MOST, "values at the end of the range", None, None, number_format, "not needed")
    if exact is None or evidence is None or exact.shape != expected.shape:
        found = deviation(expected, actual, positions, limit=limit, number_format=number_format)
        floor = assumed_floor(found, number_format, "there are no float64 values")
    else:
        usable = expected.isfinite() & actual.isfinite()
        if positions is not None:
            usable &= positions.reshape([*positions.shape] + [1] * (usable.dim() - positions.dim()))
        found = deviation(exact, actual, usable, limit=limit, number_format=number_format)
        floor = evidence.floor(known.path, number_format, found)
        if multiple_of(deviation(exact, expected, usable, limit=limit), floor).value > WRONG_ABOVE:
            # The code does not do again what it did.
            found = deviation(expected, actual, usable, limit=limit, number_format=number_format)
            floor = assumed_floor(found, number_format, "the float64 run is not the run that was recorded")
    number: Multiple = multiple_of(found, floor)
    return Noise(
        min(number.value, _MOST),
        number.measure,
        number.relative_error,
        number.relative_noise,
        floor.format,
        floor.basis,
    )


def _beyond_differs(expected: Tensor, actual: Tensor, limit: float, positions: Tensor | None) -> bool:
    """Whether a number at the end of the range, which stands for infinity, is another one in the candidate."""
    if expected.is_complex() or actual.is_complex():
        return False
    beyond = (expected.abs() >= limit) & expected.isfinite() & actual.isfinite()
    if positions is not None:
        beyond &= positions.reshape([*positions.shape] + [1] * (beyond.dim() - positions.dim()))
    if not bool(beyond.any()):
        return False
    wanted, given = expected[beyond], actual[beyond]
    return bool(((wanted - given).abs() > wanted.abs() / 2).any())


def _widened(tensor: Tensor) -> Tensor:
    dense = as_dense(tensor)
    return dense.to(torch.complex128 if dense.is_complex() else torch.float64)


def _coarser(left: str, right: str) -> str:
    return left if spacing(left) >= spacing(right) else right


def _judge_integers(expected: Tensor, actual: Tensor, known: Known, reason: str) -> tuple[Status, str]:
    """Other integers may be right, too: indices that select the same values, thresholds and roundings at a tie."""
    if known.evidence is None:
        return Status.WRONG_VALUES, reason
    expected, actual = as_dense(expected), as_dense(actual)
    chosen = known.evidence.selection(known.path)
    if chosen is not None:
        chosen = chosen.in_steps(spacing(known.number_format)) if known.number_format else chosen
        wanted, given = chosen.selected(expected), chosen.selected(actual)
        if wanted is None or given is None:
            return Status.WRONG_VALUES, "an index is out of range, or comes twice"
        if chosen.as_good(wanted, given):
            changed = int((expected != actual).sum())
            return Status.PASSED, f"{changed} other indices select values that are equal within noise"
        reason = "the indices select other values"
    runs = known.evidence.integers(known.path, known.number_format or "float32")
    if _differ_in_correct_runs(expected, actual, runs):
        changed = int((expected != actual).sum())
        return Status.PASSED, f"{changed} elements differ that differ between correct runs, too: values at a threshold"
    return Status.WRONG_VALUES, reason


def _judge_draws(expected: Tensor, actual: Tensor, known: Known, status: Status, reason: str) -> tuple[Status, str]:
    """Another backend draws other random numbers: its result may be as far off as other seeds are, and no further."""
    draws = known.evidence.drawn(known.path) if known.evidence is not None else None
    if draws is None or any(one.shape != expected.shape for one in draws.outputs):
        return status, reason
    ops = ", ".join(draws.ops)
    positions = known.counted(expected.shape)
    if not _is_float(expected):
        expected, actual = expected.double(), actual.double()
    wanted, limit = _widened(expected), half_range(expected.dtype)
    others = [deviation(wanted, _widened(one), positions, limit=limit) for one in draws.outputs]
    found = multiple_of(
        deviation(wanted, _widened(actual), positions, limit=limit), floor_of(others, "float64", "other seeds")
    )
    if found.value <= SUSPICIOUS_ABOVE:
        return Status.PASSED, f"compared by distribution: {ops} draws random numbers, and other seeds differ as much"
    further = f"{found.value:.3g} times what other seeds of {ops} explain (by its {found.measure})"
    return (Status.SUSPICIOUS if found.value <= WRONG_ABOVE else Status.WRONG_VALUES), further


def _differ_in_correct_runs(expected: Tensor, actual: Tensor, runs: Sequence[Tensor]) -> bool:
    """Whether the integers that differ are those that noise changes, nearly all of them, and by no more."""
    others = [one for one in runs if one.shape == expected.shape]
    if not others:
        return False
    changed, flipped = expected != actual, torch.stack([one != expected for one in others]).any(0)
    furthest = max(float((one.double() - expected.double()).abs().max()) for one in others)
    within = float((actual.double() - expected.double()).abs().max()) <= furthest
    return within and int((changed & ~flipped).sum()) <= _RARE_FLIPS * int(changed.sum())


def judge(
    expected: object,
    actual: object,
    tolerance: OptionsLike = None,
    evidence: Evidence | None = None,
    unread: Container[str] = (),
) -> dict[str, Any]:
    """Compare nested outputs, leaf by leaf; every leaf must agree. The verdict is a JSON document.

    `tolerance` may hold `pcc`, `relative_l2`, `rtol`, `atol`, and under `by_dtype` the same for one dtype of the
    expected output: where it holds one, it decides in place of the noise. `evidence` knows the float64 values and the
    noise of each output; without it the noise is assumed from the dtype. Outputs in `unread` are judged and reported,
    but do not decide: no op reads them.
    """
    options = read_options(tolerance)
    wanted, given = dict(leaves(expected)), dict(leaves(actual))
    coarsest = _coarsest([*wanted.values(), *given.values()])
    narrowed = _coarsest(value for path, value in given.items() if _is_narrowed(wanted.get(path), value))
    formats = {path: narrowed if _is_float(value) else coarsest for path, value in wanted.items()}
    known = {path: Known(evidence, path, formats[path]) for path in wanted}
    found = [_judge_leaf(value, given, options, known[path]) for path, value in wanted.items()]
    extra = {path: value for path, value in given.items() if path not in wanted}
    found += [
        _leaf(path, value, Status.NOT_EXPECTED, "eager does not give this output") for path, value in extra.items()
    ]
    for leaf in found:
        if leaf["path"] in unread:
            leaf["unread"] = True
    deciding = [leaf for leaf in found if not leaf.get("unread")]
    wrong = [leaf for leaf in deciding if not leaf["passed"]]
    suspicious = [leaf for leaf in deciding if leaf["status"] == Status.SUSPICIOUS.value]
    compared = any(isinstance(value, Tensor) for value in wanted.values())
    reason = _first_reason(wrong or suspicious) if wrong or suspicious else ""
    worst = {name: _worst(deciding, name) for name in _WORST}
    return {
        "passed": not wrong,
        "state": WRONG if wrong else SUSPICIOUS if suspicious else PASSED,
        "reason": reason or ("" if compared else "there is no tensor to compare"),
        **worst,
        "leaves": found,
    }


def _coarsest(values: Iterable[object]) -> str:
    """The coarsest number format among some outputs: integers say nothing about what they were computed in."""
    formats = [float_format(one.dtype) for one in values if isinstance(one, Tensor)]
    return max(filter(None, formats), key=spacing, default="")


def _is_float(value: object) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _is_narrowed(wanted: object, given: object) -> bool:
    """Whether a port gives this output in a narrower format: then it computed the wider ones in that format, too."""
    if not (isinstance(wanted, Tensor) and isinstance(given, Tensor) and _is_float(wanted) and _is_float(given)):
        return False
    return spacing(float_format(given.dtype)) > spacing(float_format(wanted.dtype))


def _judge_leaf(
    wanted: object, given: Mapping[str, object], options: ToleranceOptions, known: Known
) -> dict[str, object]:
    path = known.path
    if path not in given:
        return _leaf(path, wanted, Status.MISSING, "the backend does not give this output")
    actual = given[path]
    if isinstance(wanted, Tensor) and isinstance(actual, Tensor):
        verdict = compare(wanted, actual, options, known)
        leaf = _leaf(path, wanted, verdict.status, verdict.reason)
        return leaf | _layouts(wanted, actual) | _numbers(verdict)
    if isinstance(wanted, Tensor) or isinstance(actual, Tensor):
        return _leaf(path, wanted, Status.WRONG_TYPE, f"{type(actual).__name__} instead of {type(wanted).__name__}")
    if _plainly_equal(wanted, actual):
        return _leaf(path, wanted, Status.PASSED, "")
    return _leaf(path, wanted, Status.WRONG_VALUES, f"{actual!r}, not {wanted!r}")


def _numbers(verdict: Verdict) -> dict[str, object]:
    """The metrics of a verdict as JSON."""
    numbers = {} if verdict.errors is None else _as_json(verdict.errors)
    if verdict.noise is not None:
        numbers |= {"noise_multiple": verdict.noise.multiple, "noise": asdict(verdict.noise)}
    if verdict.tolerance is not None:
        numbers["tolerance"] = verdict.tolerance.as_dict()
    return numbers


def error_limit(leaf: Mapping[str, Any]) -> dict[str, float]:
    """The relative L2 error beyond which an output like this one is wrong, for a script that has no noise floor.

    The error was some multiple of the noise by the measure that showed it best; the limit is the error at which that
    multiple is no longer legal.
    """
    noise = leaf.get("noise") or {}
    error, multiple, floor = noise.get("relative_error"), noise.get("multiple"), noise.get("relative_noise")
    if error and multiple:
        return {"relative_l2": WRONG_ABOVE * error / multiple}
    return {"relative_l2": WRONG_ABOVE * floor} if floor else {}


def _plainly_equal(wanted: object, actual: object) -> bool:
    """Whether two values that are no tensors agree; objects without an == of their own cannot be compared."""
    if wanted is None or actual is None:
        return wanted is actual
    has_no_equality = "__eq__" not in {name for kind in type(wanted).__mro__[:-1] for name in vars(kind)}
    return has_no_equality or bool(wanted == actual) or (wanted != wanted and actual != actual)  # noqa: PLR0124 - NaN


def _leaf(path: str, value: object, status: Status, reason: str) -> dict[str, object]:
    about = {"path": path, "passed": status in PASSING, "status": status.value, "reason": reason}
    return about | (_layout(value) if isinstance(value, Tensor) else {})


def _layouts(wanted: Tensor, actual: Tensor) -> dict[str, object]:
    """What the values do not show: reported, and judged only by whoever asks for it."""
    strided = wanted.layout == actual.layout == torch.strided
    same_stride = strided and wanted.stride() == actual.stride()
    return _layout(actual, "actual_") | {"same_dtype": wanted.dtype == actual.dtype, "same_stride": same_stride}


def _layout(tensor: Tensor, prefix: str = "") -> dict[str, object]:
    stride = list(tensor.stride()) if tensor.layout == torch.strided else None
    return {
        f"{prefix}shape": list(tensor.shape),
        f"{prefix}dtype": dtype_name(tensor.dtype),
        f"{prefix}stride": stride,
    }


def _as_json(errors: Errors) -> dict[str, object]:
    numbers = asdict(errors)
    return {name: list(number) if isinstance(number, tuple) else number for name, number in numbers.items()}


def _first_reason(wrong: list[dict[str, object]]) -> str:
    first = wrong[0]
    where = f"{first['path']}: " if first["path"] else ""
    more = f" (and {len(wrong) - 1} more outputs)" if len(wrong) > 1 else ""
    return f"{where}{first['reason'] or first['status']}{more}"


def _worst(found: list[dict[str, Any]], name: str) -> float | None:
    numbers = [leaf[name] for leaf in found if leaf.get(name) is not None]
    return _WORST[name](numbers) if numbers else None

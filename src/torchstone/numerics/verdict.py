"""Expected and actual outputs -> whether they agree, and how far they are apart.

`compare` judges one tensor, `judge` everything that a module returned. Whether a tensor agrees is decided by
`apply_rule` and nowhere else: errors and a tolerance go in, a status and its reason come out. PCC alone would pass an
output scaled by two, so the relative L2 error decides with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from torchstone.numerics.compare import Errors, measure
from torchstone.numerics.dtypes import dtype_name, kind_of
from torchstone.numerics.pytree import leaves
from torchstone.numerics.tolerance import (
    NO_OPTIONS,
    OptionsLike,
    Tolerance,
    ToleranceOptions,
    read_options,
    tolerance_for,
)

_WORST = {"pcc": min, "cosine": min, "relative_l2": max, "max_abs": max, "max_rel": max, "max_ulp": max}


class Status(Enum):
    """How the comparison of one output ended."""

    PASSED = "passed"
    WRONG_VALUES = "wrong values"
    WRONG_NON_FINITE = "wrong NaN or Inf"
    WRONG_SHAPE = "wrong shape"
    WRONG_DTYPE = "wrong dtype"  # another kind of number; another width is only reported
    WRONG_TYPE = "wrong type"  # a tensor on one side, something else on the other
    MISSING = "missing"
    NOT_EXPECTED = "not expected"


@dataclass(frozen=True)
class Verdict:
    """What was found about one tensor: every metric, and the tolerance it was judged by."""

    status: Status
    reason: str = ""  # why it is wrong, or what is worth knowing about one that passed
    errors: Errors | None = None  # None where the shapes differ
    tolerance: Tolerance | None = None

    @property
    def passed(self) -> bool:
        """Whether the tensors agree."""
        return self.status is Status.PASSED


def compare(expected: Tensor, actual: Tensor, options: ToleranceOptions = NO_OPTIONS) -> Verdict:
    """Judge one tensor. A shape or a kind of number that differs is a mismatch; nothing is broadcast."""
    if expected.shape != actual.shape:
        return Verdict(Status.WRONG_SHAPE, f"shape {list(actual.shape)} instead of {list(expected.shape)}")
    wanted, given = dtype_name(expected.dtype), dtype_name(actual.dtype)
    tolerance = tolerance_for(wanted, given, options)
    with torch.no_grad():
        errors = measure(expected, actual, rtol=tolerance.rtol, atol=tolerance.atol)
    other_dtype = "" if wanted == given else f"{given} instead of {wanted}"
    if kind_of(wanted) != kind_of(given):
        return Verdict(Status.WRONG_DTYPE, other_dtype, errors, tolerance)
    status, reason = apply_rule(errors, tolerance)
    if status is Status.PASSED:
        reason = "; ".join(filter(None, (other_dtype, reason)))
    return Verdict(status, reason, errors, tolerance)


def apply_rule(errors: Errors, tolerance: Tolerance) -> tuple[Status, str]:
    """The rule: NaN and Inf at the same places; integers equal; PCC and relative L2 error within the tolerance.

    Where there is no PCC (a constant or a single element), allclose decides. The relative L2 error of values that are
    close element by element does not count: values around 0 may be all rounding.
    """
    if errors.misplaced:
        where = f"first at {list(errors.worst_at or ())}"
        return Status.WRONG_NON_FINITE, f"{errors.misplaced} elements are NaN or infinite in one of the two, {where}"
    if tolerance.exact:
        passed = errors.max_abs in (None, 0.0)
        return (Status.PASSED, "") if passed else (Status.WRONG_VALUES, "integers and booleans must be equal")
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


def judge(expected: object, actual: object, tolerance: OptionsLike = None) -> dict[str, Any]:
    """Compare nested outputs, leaf by leaf; every leaf must agree. The verdict is a JSON document.

    `tolerance` may hold `pcc`, `relative_l2`, `rtol`, `atol`, and under `by_dtype` the same for one dtype of the
    expected output. What it does not hold is decided by dtype.
    """
    options = read_options(tolerance)
    wanted, given = dict(leaves(expected)), dict(leaves(actual))
    found = [_judge_leaf(path, value, given, options) for path, value in wanted.items()]
    extra = {path: value for path, value in given.items() if path not in wanted}
    found += [
        _leaf(path, value, Status.NOT_EXPECTED, "eager does not give this output") for path, value in extra.items()
    ]
    wrong = [leaf for leaf in found if not leaf["passed"]]
    compared = any(isinstance(value, Tensor) for value in wanted.values())
    reason = _first_reason(wrong) if wrong else "" if compared else "there is no tensor to compare"
    worst = {name: _worst(found, name) for name in _WORST}
    return {"passed": not wrong, "reason": reason, **worst, "leaves": found}


def _judge_leaf(path: str, wanted: object, given: Mapping[str, Any], options: ToleranceOptions) -> dict[str, object]:
    if path not in given:
        return _leaf(path, wanted, Status.MISSING, "the backend does not give this output")
    actual = given[path]
    if isinstance(wanted, Tensor) and isinstance(actual, Tensor):
        verdict = compare(wanted, actual, options)
        numbers = {} if verdict.errors is None else _as_json(verdict.errors)
        judged_by = {} if verdict.tolerance is None else {"tolerance": verdict.tolerance.as_dict()}
        leaf = _leaf(path, wanted, verdict.status, verdict.reason)
        return leaf | _layouts(wanted, actual) | numbers | judged_by
    if isinstance(wanted, Tensor) or isinstance(actual, Tensor):
        return _leaf(path, wanted, Status.WRONG_TYPE, f"{type(actual).__name__} instead of {type(wanted).__name__}")
    if _plainly_equal(wanted, actual):
        return _leaf(path, wanted, Status.PASSED, "")
    return _leaf(path, wanted, Status.WRONG_VALUES, f"{actual!r}, not {wanted!r}")


def _plainly_equal(wanted: object, actual: object) -> bool:
    """Whether two values that are no tensors agree; objects without an == of their own cannot be compared."""
    if wanted is None or actual is None:
        return wanted is actual
    has_no_equality = "__eq__" not in {name for kind in type(wanted).__mro__[:-1] for name in vars(kind)}
    return has_no_equality or bool(wanted == actual) or (wanted != wanted and actual != actual)  # noqa: PLR0124 - NaN


def _leaf(path: str, value: object, status: Status, reason: str) -> dict[str, object]:
    about = {"path": path, "passed": status is Status.PASSED, "status": status.value, "reason": reason}
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


def _first_reason(wrong: list[dict[str, Any]]) -> str:
    first = wrong[0]
    where = f"{first['path']}: " if first["path"] else ""
    more = f" (and {len(wrong) - 1} more outputs)" if len(wrong) > 1 else ""
    return f"{where}{first['reason'] or first['status']}{more}"


def _worst(found: list[dict[str, Any]], name: str) -> float | None:
    numbers = [leaf[name] for leaf in found if leaf.get(name) is not None]
    return _WORST[name](numbers) if numbers else None

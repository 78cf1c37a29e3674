"""Expected and actual outputs, nested as they come -> whether they agree, and how far apart they are.

The numbers mean what `torchstone reference compare` means by them (docs/how-it-works/conventions.md). PCC alone would
pass an output scaled by two, so the relative L2 error decides with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchstone.backends.distance import dtype_name, errors_between
from torchstone.backends.flattening import leaves
from torchstone.backends.tolerance import tolerance_for

_WORST = {"pcc": min, "cosine": min, "relative_l2": max, "max_abs": max, "max_rel": max, "max_ulp": max}


def judge(expected: Any, actual: Any, tolerance: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Compare nested outputs, leaf by leaf; every leaf must agree.

    `tolerance` may hold `pcc`, `relative_l2`, `rtol`, `atol`, and under `by_dtype` the same for one element type of the
    expected output. What it does not say is taken from tolerance.py.
    """
    wanted, given = dict(leaves(expected)), dict(leaves(actual))
    with torch.no_grad():
        found = [_judge_leaf(path, wanted[path], given, tolerance or {}) for path in wanted]
    extra = [path for path in given if path not in wanted]
    found.extend(_leaf(path, given[path], "not expected", "eager does not give this output") for path in extra)
    wrong = [leaf for leaf in found if not leaf["passed"]]
    compared = any(isinstance(value, Tensor) for value in wanted.values())
    reason = _reason(wrong[0], len(wrong)) if wrong else "" if compared else "there is no tensor to compare"
    worst = {name: _worst(found, name) for name in _WORST}
    return {"passed": not wrong, "reason": reason, **worst, "leaves": found}


def _judge_leaf(path: str, wanted: Any, given: Mapping[str, Any], tolerance: Mapping[str, Any]) -> dict[str, Any]:
    if path not in given:
        return _leaf(path, wanted, "missing", "the backend does not give this output")
    actual = given[path]
    if isinstance(wanted, Tensor) != isinstance(actual, Tensor):
        return _leaf(path, wanted, "wrong type", f"{type(actual).__name__} instead of {type(wanted).__name__}")
    if not isinstance(wanted, Tensor):
        same = _plainly_equal(wanted, actual)
        return _leaf(path, wanted, "passed" if same else "wrong values", "" if same else f"{actual!r}, not {wanted!r}")
    return _judge_tensor(path, wanted, actual, tolerance)


def _plainly_equal(wanted: Any, actual: Any) -> bool:
    """Whether two values that are no tensors agree; objects that only tell who they are cannot be compared."""
    if wanted is None or actual is None:
        return wanted is actual
    tells_only_who_it_is = "__eq__" not in {name for kind in type(wanted).__mro__[:-1] for name in vars(kind)}
    return tells_only_who_it_is or bool(wanted == actual) or (wanted != wanted and actual != actual)  # noqa: PLR0124 - NaN


def _judge_tensor(path: str, wanted: Tensor, actual: Tensor, tolerance: Mapping[str, Any]) -> dict[str, Any]:
    about = _about(wanted, actual)
    if wanted.shape != actual.shape:
        reason = f"shape {list(actual.shape)} instead of {list(wanted.shape)}"
        return _leaf(path, wanted, "wrong shape", reason) | about
    allowed = tolerance_for(wanted.dtype, actual.dtype, tolerance)
    errors = errors_between(wanted, actual, rtol=allowed["rtol"], atol=allowed["atol"])
    status, reason = _status(wanted, actual, errors, allowed)
    return _leaf(path, wanted, status, reason) | about | errors | {"tolerance": allowed}


def _status(wanted: Tensor, actual: Tensor, errors: Mapping[str, Any], allowed: Mapping[str, Any]) -> tuple[str, str]:
    if _kind(wanted.dtype) != _kind(actual.dtype):
        return "wrong dtype", f"{dtype_name(actual)} instead of {dtype_name(wanted)}"
    if errors["misplaced"]:
        return "wrong NaN or Inf", f"{errors['misplaced']} elements are NaN or infinite in one of the two"
    if allowed["exact"]:
        passed = errors["max_abs"] in (None, 0.0)
        return ("passed", "") if passed else ("wrong values", "whole numbers must be equal")
    if errors["pcc"] is None:
        if errors["allclose"]:
            return "passed", f"no PCC ({errors['pcc_reason']}): judged by allclose"
        return "wrong values", f"no PCC ({errors['pcc_reason']}), and not close"
    if errors["pcc"] < allowed["pcc"]:
        return "wrong values", f"PCC {errors['pcc']:.6g} is below {allowed['pcc']:g}"
    relative_l2 = errors["relative_l2"]
    if relative_l2 is not None and relative_l2 > allowed["relative_l2"] and not errors["allclose"]:
        return "wrong values", f"relative L2 error {relative_l2:.3g} is above {allowed['relative_l2']:.3g}"
    same = wanted.dtype == actual.dtype
    return "passed", "" if same else f"{dtype_name(actual)} instead of {dtype_name(wanted)}"


def _leaf(path: str, value: Any, status: str, reason: str) -> dict[str, Any]:
    return {"path": path, "passed": status == "passed", "status": status, "reason": reason} | (
        _spec(value) if isinstance(value, Tensor) else {}
    )


def _spec(tensor: Tensor, prefix: str = "") -> dict[str, Any]:
    stride = list(tensor.stride()) if tensor.layout == torch.strided else None
    return {
        f"{prefix}shape": list(tensor.shape),
        f"{prefix}dtype": dtype_name(tensor),
        f"{prefix}stride": stride,
    }


def _about(wanted: Tensor, actual: Tensor) -> dict[str, Any]:
    strided = wanted.layout == actual.layout == torch.strided
    same_stride = strided and wanted.stride() == actual.stride()
    return _spec(actual, "actual_") | {"same_dtype": wanted.dtype == actual.dtype, "same_stride": same_stride}


def _reason(leaf: Mapping[str, Any], count: int) -> str:
    where = f"{leaf['path']}: " if leaf["path"] else ""
    more = f" (and {count - 1} more outputs)" if count > 1 else ""
    return f"{where}{leaf['reason'] or leaf['status']}{more}"


def _worst(found: list[dict[str, Any]], name: str) -> float | None:
    numbers = [leaf[name] for leaf in found if leaf.get(name) is not None]
    return _WORST[name](numbers) if numbers else None


def _kind(dtype: torch.dtype) -> str:
    if dtype.is_complex:
        return "complex"
    return "float" if dtype.is_floating_point else "bool" if dtype == torch.bool else "whole"

"""One golden tensor against one candidate -> a verdict."""

import torch
from torch import Tensor

from torchstone.record.comparison import Errors, Status, TensorVerdict, Tolerance
from torchstone.record.golden import GoldenTensor, Role
from torchstone.reference.explaining import Passes, explain, explain_scale
from torchstone.reference.measuring import measure
from torchstone.reference.tolerances import tolerance_for


def judge(about: GoldenTensor, golden: Tensor | None, candidate: Tensor | None, *, pcc: float) -> TensorVerdict:
    """What is to be said about one tensor; None is one that is not there."""
    if golden is None:
        return _verdict(about, candidate, Status.NOT_KEPT, detail=about.reason)
    if candidate is None:
        missing = Status.MISSING if about.role is Role.OUTPUT else Status.NOT_GIVEN
        return _verdict(about, candidate, missing)
    tolerance = tolerance_for(golden.dtype, candidate.dtype, pcc=pcc)
    if golden.shape != candidate.shape:
        detail = f"{list(candidate.shape)} instead of {list(golden.shape)}"
        hint = explain(golden, candidate, _passing(tolerance))
        return _verdict(about, candidate, Status.WRONG_SHAPE, detail="; ".join(filter(None, (detail, hint))))
    errors = measure(golden, candidate, rtol=tolerance.rtol, atol=tolerance.atol)
    status, detail = _status(golden, candidate, errors, tolerance)
    if status is Status.WRONG_VALUES:
        detail = "; ".join(filter(None, (detail, _hint(golden, candidate, errors, tolerance))))
    return _verdict(about, candidate, status, detail=detail, errors=errors, tolerance=tolerance)


def _passing(tolerance: Tolerance) -> Passes:
    """Whether a changed candidate would pass; a constant tensor passes too easily to explain anything."""

    def passes(golden: Tensor, candidate: Tensor) -> bool:
        errors = measure(golden, candidate, rtol=tolerance.rtol, atol=tolerance.atol)
        return errors.pcc is not None and _status(golden, candidate, errors, tolerance)[0] is Status.PASSED

    return passes


def _hint(golden: Tensor, candidate: Tensor, errors: Errors, tolerance: Tolerance) -> str:
    passes = _passing(tolerance)
    if errors.pcc is not None and errors.pcc >= tolerance.pcc and not tolerance.exact:
        return explain_scale(golden, candidate, passes)
    return explain(golden, candidate, passes) or f"worst at {list(errors.worst_at or ())}"


def _status(golden: Tensor, candidate: Tensor, errors: Errors, tolerance: Tolerance) -> tuple[Status, str]:
    if _kind(golden.dtype) != _kind(candidate.dtype):
        return Status.WRONG_DTYPE, f"{_name(candidate.dtype)} instead of {_name(golden.dtype)}"
    if errors.misplaced:
        where = f"first at {list(errors.worst_at or ())}"
        return Status.WRONG_NON_FINITE, f"{errors.misplaced} elements are NaN or infinite in one of the two, {where}"
    note = _dtype_note(golden, candidate)
    if tolerance.exact:
        passed = errors.max_abs in (None, 0.0)
        return (Status.PASSED, note) if passed else (Status.WRONG_VALUES, "whole numbers must be equal")
    if errors.pcc is None:
        if errors.allclose:
            return Status.PASSED, f"no PCC ({errors.pcc_reason}): judged by allclose"
        return Status.WRONG_VALUES, f"no PCC ({errors.pcc_reason}), and not close"
    if errors.pcc < tolerance.pcc:
        return Status.WRONG_VALUES, f"PCC below {tolerance.pcc:g}"
    if errors.relative_l2 is not None and errors.relative_l2 > tolerance.relative_l2 and not errors.allclose:
        return Status.WRONG_VALUES, "scaled or shifted: PCC cannot see it, the relative L2 error does"
    return Status.PASSED, note


def _dtype_note(golden: Tensor, candidate: Tensor) -> str:
    same = golden.dtype == candidate.dtype
    return "" if same else f"{_name(candidate.dtype)} instead of {_name(golden.dtype)}"


def _verdict(
    about: GoldenTensor,
    candidate: Tensor | None,
    status: Status,
    *,
    detail: str = "",
    errors: Errors | None = None,
    tolerance: Tolerance | None = None,
) -> TensorVerdict:
    return TensorVerdict(
        name=about.name,
        role=about.role,
        module=about.module,
        status=status,
        detail=detail,
        shape=about.shape,
        dtype=about.dtype,
        candidate_shape=None if candidate is None else tuple(candidate.shape),
        candidate_dtype=None if candidate is None else _name(candidate.dtype),
        errors=errors,
        tolerance=tolerance,
    )


def _kind(dtype: torch.dtype) -> str:
    if dtype.is_complex:
        return "complex"
    return "float" if dtype.is_floating_point else "bool" if dtype == torch.bool else "whole"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

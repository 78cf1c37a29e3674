"""One golden tensor against one candidate -> a verdict, with the likely cause of a difference."""

from dataclasses import asdict

from torch import Tensor

from torchstone.numerics.compare import Errors as Measured
from torchstone.numerics.dtypes import dtype_name
from torchstone.numerics.tolerance import ToleranceOptions
from torchstone.numerics.verdict import Verdict, compare
from torchstone.record.reference import Errors, GoldenTensor, Role, Status, TensorVerdict, Tolerance
from torchstone.reference.layouts import Passes, explain

# --- Likely causes beside another layout: a wrong scale or offset ---


def explain_scale(golden: Tensor, candidate: Tensor, passes: Passes) -> str:
    """The factor or offset between two tensors of the same shape with a good PCC, as text."""
    left, right = golden.double(), candidate.double()
    factor = float((left * right).sum() / (left * left).sum())
    if factor and passes(golden, (right / factor).to(candidate.dtype)):
        return f"it is about {factor:.4g} times the golden tensor"
    offset = float((right - left).mean())
    if passes(golden, (right - offset).to(candidate.dtype)):
        return f"it is about the golden tensor plus {offset:.4g}"
    return ""


# --- Verdict on one tensor ---

_NOT_IN_THE_DOCUMENT = ("max_ulp",)


def judge(about: GoldenTensor, golden: Tensor | None, candidate: Tensor | None, *, pcc: float) -> TensorVerdict:
    """Judge one tensor; None stands for one that is missing."""
    if golden is None:
        return _verdict(about, candidate, Status.NOT_KEPT, detail=about.reason)
    if candidate is None:
        missing = Status.MISSING if about.role is Role.OUTPUT else Status.NOT_GIVEN
        return _verdict(about, candidate, missing)
    options = ToleranceOptions({"pcc": pcc})
    found = compare(golden, candidate, options)
    status = Status(found.status.value)
    hint = _hint(golden, candidate, found, options) if status in (Status.WRONG_SHAPE, Status.WRONG_VALUES) else ""
    return _verdict(about, candidate, status, detail="; ".join(filter(None, (found.reason, hint))), found=found)


def _hint(golden: Tensor, candidate: Tensor, found: Verdict, options: ToleranceOptions) -> str:
    passes = _passing(options)
    if found.errors is None or found.tolerance is None:
        return explain(golden, candidate, passes)
    pcc = found.errors.pcc
    if pcc is not None and pcc >= found.tolerance.pcc and not found.tolerance.exact:
        return explain_scale(golden, candidate, passes) or "scaled or shifted, which PCC does not detect"
    return explain(golden, candidate, passes) or f"worst at {list(found.errors.worst_at or ())}"


def _passing(options: ToleranceOptions) -> Passes:
    """Whether a changed candidate would pass; a constant tensor passes too easily to explain anything."""

    def passes(golden: Tensor, candidate: Tensor) -> bool:
        found = compare(golden, candidate, options)
        return found.passed and found.errors is not None and found.errors.pcc is not None

    return passes


def _verdict(
    about: GoldenTensor, candidate: Tensor | None, status: Status, *, detail: str = "", found: Verdict | None = None
) -> TensorVerdict:
    errors, tolerance = (None, None) if found is None else (found.errors, found.tolerance)
    return TensorVerdict(
        name=about.name,
        role=about.role,
        module=about.module,
        status=status,
        detail=detail,
        shape=about.shape,
        dtype=about.dtype,
        candidate_shape=None if candidate is None else tuple(candidate.shape),
        candidate_dtype=None if candidate is None else dtype_name(candidate.dtype),
        errors=None if errors is None else _errors(errors),
        tolerance=None if tolerance is None else Tolerance(**asdict(tolerance)),
    )


def _errors(measured: Measured) -> Errors:
    return Errors(**{name: value for name, value in asdict(measured).items() if name not in _NOT_IN_THE_DOCUMENT})

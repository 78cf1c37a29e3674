"""One golden tensor against one candidate -> a verdict, with the likely cause of a difference."""

from dataclasses import asdict, dataclass
from math import isfinite

from torch import Tensor

from torchstone.numerics.compare import Errors as Measured
from torchstone.numerics.dtypes import dtype_name
from torchstone.numerics.expected import Evidence
from torchstone.numerics.number_formats import float_format, is_rounded_to, spacing
from torchstone.numerics.tolerance import DEFAULT_PCC, NO_OPTIONS, ToleranceOptions
from torchstone.numerics.verdict import Known, Noise, Verdict, compare
from torchstone.record.reference import (
    WRONG,
    Errors,
    GoldenTensor,
    NoiseOfTensor,
    Role,
    Status,
    TensorVerdict,
    Tolerance,
)
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

_WITH_HINT = (Status.WRONG_SHAPE, Status.WRONG_VALUES)
_ENOUGH_VALUES = 16  # fewer may be numbers of a narrow format by chance


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What golden tensors are judged by: their noise, or a minimum PCC where the user asks for one."""

    noise: Evidence | None = None
    pcc: float | None = None
    number_format: str = ""  # what the candidate is kept in, where its dtype does not say so: bfloat8_b

    @property
    def options(self) -> ToleranceOptions:
        """The tolerances that the user asked for."""
        return NO_OPTIONS if self.pcc is None else ToleranceOptions({"pcc": self.pcc})


def judge(about: GoldenTensor, golden: Tensor | None, candidate: Tensor | None, basis: Basis) -> TensorVerdict:
    """Judge one tensor; None stands for one that is missing."""
    if golden is None:
        return _verdict(about, candidate, Status.NOT_KEPT, detail=about.reason)
    if candidate is None:
        missing = Status.MISSING if about.role is Role.OUTPUT else Status.NOT_GIVEN
        return _verdict(about, candidate, missing)
    kept_in = basis.number_format or _format_of_values(golden, candidate)
    known = Known(basis.noise, about.name, kept_in)
    found = compare(golden, candidate, basis.options, known)
    status = Status(found.status.value)
    hint = _hint(golden, candidate, found, basis, known) if status in _WITH_HINT else ""
    note = f"its values are all {kept_in}: judged as such" if kept_in and not basis.number_format else ""
    detail = "; ".join(filter(None, (found.reason, hint, note)))
    return _verdict(about, candidate, status, detail=detail, found=found)


def _format_of_values(golden: Tensor, candidate: Tensor) -> str:
    """The narrow format that a port was computed in, although it was saved as a wider one; "" where none is seen."""
    if not candidate.is_floating_point() or candidate.numel() < _ENOUGH_VALUES or not golden.is_floating_point():
        return ""
    return next(
        (
            name
            for name in ("bfloat16", "float16")
            if spacing(name) > spacing(float_format(candidate.dtype))
            and is_rounded_to(candidate, name)
            and not is_rounded_to(golden, name)
        ),
        "",
    )


def _hint(golden: Tensor, candidate: Tensor, found: Verdict, basis: Basis, known: Known) -> str:
    passes = _passing(basis, known)
    if found.errors is None:
        return explain(golden, candidate, passes)
    pcc = found.errors.pcc
    if pcc is not None and pcc >= DEFAULT_PCC and golden.is_floating_point():
        scaled = explain_scale(golden, candidate, passes)
        if scaled or basis.pcc is not None:
            return scaled or "scaled or shifted, which PCC does not detect"
    return explain(golden, candidate, passes) or f"worst at {list(found.errors.worst_at or ())}"


def _passing(basis: Basis, known: Known) -> Passes:
    """Whether a changed candidate would pass; a constant tensor passes too easily to explain anything."""

    def passes(golden: Tensor, candidate: Tensor) -> bool:
        found = compare(golden, candidate, basis.options, known)
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
        state=_state(status),
        noise_multiple=None if found is None or found.noise is None else _finite(found.noise.multiple),
        noise=None if found is None or found.noise is None else _noise(found.noise),
    )


def _state(status: Status) -> str:
    """Passed, suspicious, wrong, or why there is no verdict."""
    return "wrong" if status in WRONG else status.value


def _finite(number: float | None) -> float | None:
    return None if number is None or not isfinite(number) else number


def _noise(found: Noise) -> NoiseOfTensor:
    return NoiseOfTensor(
        format=found.format,
        basis=found.basis,
        measure=found.measure,
        relative_error=_finite(found.relative_error),
        relative_noise=_finite(found.relative_noise),
    )


def _errors(measured: Measured) -> Errors:
    return Errors(**asdict(measured))

"""One golden tensor against one candidate -> a verdict, with the likely cause of a difference."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import permutations

from torch import Tensor

from torchstone.numerics.compare import Errors as Measured
from torchstone.numerics.dtypes import dtype_name
from torchstone.numerics.tolerance import ToleranceOptions
from torchstone.numerics.verdict import Verdict, compare
from torchstone.record.reference import Errors, GoldenTensor, Role, Status, TensorVerdict, Tolerance

# --- Likely causes: another order of dimensions, another shape, padding, a wrong scale or offset ---

Passes = Callable[[Tensor, Tensor], bool]  # whether a candidate would pass for a golden tensor

_MAX_ELEMENTS = 1 << 24  # each try costs a comparison of the whole tensor
_MAX_DIMENSIONS = 5


def explain(golden: Tensor, candidate: Tensor, passes: Passes) -> str:
    """The transformation that would make a wrong candidate correct, as text; "" when none of the known ones does."""
    if not 0 < candidate.numel() <= _MAX_ELEMENTS or candidate.is_complex():
        return ""
    tries = _reorderings(golden, candidate) if golden.shape == candidate.shape else _other_shapes(golden, candidate)
    return next((hint for hint, changed in tries if passes(golden, changed)), "")


def _other_shapes(golden: Tensor, candidate: Tensor) -> Iterator[tuple[str, Tensor]]:
    if candidate.numel() == golden.numel() and _without_ones(golden) == _without_ones(candidate):
        yield f"correct after reshape{tuple(golden.shape)}", candidate.reshape(golden.shape)
    yield from _reorderings(golden, candidate)
    if candidate.numel() == golden.numel():
        yield f"correct after reshape{tuple(golden.shape)}", candidate.reshape(golden.shape)
    sizes = tuple(golden.shape)
    if candidate.dim() == golden.dim() and all(map(int.__ge__, candidate.shape, sizes)):
        yield f"correct in its first {list(sizes)}: the rest is padding", candidate[tuple(map(slice, sizes))]


def _without_ones(tensor: Tensor) -> list[int]:
    return [size for size in tensor.shape if size > 1]


def _reorderings(golden: Tensor, candidate: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Every other order of the dimensions that gives the golden shape."""
    if sorted(golden.shape) != sorted(candidate.shape) or candidate.dim() > _MAX_DIMENSIONS:
        return
    for order in permutations(range(candidate.dim())):
        moved = candidate.permute(order)
        if moved.shape == golden.shape and list(order) != sorted(order):
            yield f"correct after permute{order}", moved


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

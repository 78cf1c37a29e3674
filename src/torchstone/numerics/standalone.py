"""The judge for scripts that need torch alone: one function, written into a script as it stands.

It decides as `verdict.compare` does, which a test holds, without the metrics that a script does not print.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def difference(
    expected: Tensor, actual: Tensor, *, pcc: float | None, relative_l2: float, rtol: float, atol: float
) -> str:
    """Why two tensors do not agree; "" when they do. Without a PCC the relative L2 error decides."""
    import torch

    kinds = [(one.is_floating_point(), one.is_complex(), one.dtype == torch.bool) for one in (expected, actual)]
    if expected.shape != actual.shape or kinds[0] != kinds[1]:
        return f"{actual.dtype} {list(actual.shape)} instead of {expected.dtype} {list(expected.shape)}"
    if expected.is_complex():
        expected, actual = torch.view_as_real(expected.resolve_conj()), torch.view_as_real(actual.resolve_conj())
    if not expected.is_floating_point():  # as Python integers: float64 does not tell 2**53 from 2**53 + 1
        wrong = sum(x != y for x, y in zip(expected.flatten().tolist(), actual.flatten().tolist(), strict=True))
        return f"{wrong} elements differ" if wrong else ""
    x, y = expected.double().flatten(), actual.double().flatten()
    finite = x.isfinite() & y.isfinite()
    misplaced = int((~finite & ~((x.isnan() & y.isnan()) | (x == y))).sum())
    if misplaced:
        return f"{misplaced} elements are NaN or infinite in one of the two"
    x, y = x[finite], y[finite]
    if torch.equal(x, y):
        return ""
    close = bool(((x - y).abs() <= atol + rtol * x.abs()).all())
    x_size, y_size = (one.abs().max().clamp_min(1e-300) for one in (x, y))
    error = float(((x - y) / x_size).norm() / (x / x_size).norm().clamp_min(1e-300))
    if pcc is None:
        return "" if error <= relative_l2 else f"relative L2 error {error:.3g}, more than {relative_l2:.3g}"
    if bool((x == x[0]).all()) or bool((y == y[0]).all()):
        return "" if close else f"no PCC, relative L2 error {error:.3g}"
    x, y = x / x_size - (x / x_size).mean(), y / y_size - (y / y_size).mean()
    found = float(x @ y / (x.norm() * y.norm()).clamp_min(1e-300))
    return "" if found >= pcc and (close or error <= relative_l2) else f"PCC {found:.6f}, relative L2 error {error:.3g}"


def source_of_difference() -> str:
    """The text of `difference` without types, for a script that imports torch itself."""
    _, _, body = inspect.getsource(difference).replace("    import torch\n\n", "").partition(" -> str:\n")
    return f"def difference(expected, actual, *, pcc, relative_l2, rtol, atol):\n{body}"

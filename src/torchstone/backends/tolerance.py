"""How far an output may be off: PCC and relative L2 for all element types, allclose by element type."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

import torch

DEFAULT_PCC = 0.99
_BY_DTYPE = {  # rtol, atol; those of torch.testing, and for 8 bits one step of the mantissa
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
    "float8_e4m3fn": (0.125, 1e-5),
    "float8_e5m2": (0.25, 1e-5),
}
_EXACT = (0.0, 0.0)


def tolerance_for(wanted: torch.dtype, actual: torch.dtype, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The tolerance for two element types: what was asked for, else the wider one of theirs.

    Whole numbers and booleans must be equal. Noise that brings PCC down to p makes a relative L2 error of about
    sqrt(1 - p * p); twice that is allowed.
    """
    names = [str(dtype).removeprefix("torch.") for dtype in (wanted, actual)]
    asked = {**asked, **asked.get("by_dtype", {}).get(names[0], {})}
    exact = not (wanted.is_floating_point or wanted.is_complex)
    rtol, atol = (max(pair) for pair in zip(*(_BY_DTYPE.get(name, _EXACT) for name in names), strict=True))
    rtol, atol = float(asked.get("rtol", rtol)), float(asked.get("atol", atol))
    pcc = float(asked.get("pcc", DEFAULT_PCC))
    return {
        "pcc": pcc,
        "relative_l2": float(asked.get("relative_l2", max(2 * sqrt(max(0.0, 1 - pcc * pcc)), rtol))),
        "rtol": 0.0 if exact else rtol,
        "atol": 0.0 if exact else atol,
        "exact": exact,
    }

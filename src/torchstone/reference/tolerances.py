"""What a tensor is judged by: the PCC the user asked for, and allclose by element type."""

from math import sqrt

import torch

from torchstone.record.comparison import Tolerance

DEFAULT_PCC = 0.99
_BY_DTYPE = {  # rtol, atol; those of torch.testing, and for 8 bits one step of the mantissa
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-6, 1e-5),
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
    torch.float8_e4m3fn: (0.125, 1e-5),
    torch.float8_e5m2: (0.25, 1e-5),
}
_EXACT = (0.0, 0.0)


def tolerance_for(golden: torch.dtype, candidate: torch.dtype, *, pcc: float = DEFAULT_PCC) -> Tolerance:
    """The tolerance for two element types: the wider one of theirs; whole numbers must be equal.

    Noise that brings PCC down to p makes a relative L2 error of about sqrt(1 - p * p). Twice that is allowed: more is
    no noise but a wrong scale or offset, which PCC cannot see.
    """
    pairs = [_BY_DTYPE.get(dtype, _EXACT) for dtype in (golden, candidate)]
    rtol, atol = (max(values) for values in zip(*pairs, strict=True))
    exact = not (golden.is_floating_point or golden.is_complex)
    return Tolerance(
        pcc=pcc,
        relative_l2=max(2 * sqrt(max(0.0, 1 - pcc * pcc)), rtol),
        rtol=0.0 if exact else rtol,
        atol=0.0 if exact else atol,
        exact=exact,
    )

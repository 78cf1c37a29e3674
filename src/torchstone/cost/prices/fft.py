"""Fourier transforms: 5 * n * log2(n) real FLOPs for a complex transform of length n, half of it for a real one."""

from math import log2, prod

from torchstone.cost.arguments import numbers, output, tensor
from torchstone.cost.registry import Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec

_COMPLEX = 5
_REAL = 2.5


def _transform(spec: TensorSpec, dims: tuple[int, ...], factor: float) -> Price:
    length = prod(spec.shape[dim] for dim in dims)
    return Price(flops=round(factor * spec.elements * log2(length)) if length > 1 else 0)


@price_of("aten._fft_c2c", kind=Kind.FFT)
def complex_to_complex(call: OpSignature) -> Price:
    """A transform along the dimensions, for each of the rest."""
    return _transform(tensor(call, "self"), numbers(call, "dim") or (), _COMPLEX)


@price_of("aten._fft_r2c", kind=Kind.FFT)
def real_to_complex(call: OpSignature) -> Price:
    """Real input: half the work."""
    return _transform(tensor(call, "self"), numbers(call, "dim") or (), _REAL)


@price_of("aten._fft_c2r", kind=Kind.FFT)
def complex_to_real(call: OpSignature) -> Price:
    """Real result: half the work."""
    return _transform(output(call), numbers(call, "dim") or (), _REAL)

"""How many bytes a tensor is worth when it is read, written or held."""

from math import prod

from torchstone.cost.registry import NoPriceError
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec, element_bits
from torchstone.record.value import tensors_in

_OUT = ("out", "out0", "out1", "out2")  # buffers that an op is given to write to


def element_bytes(spec: TensorSpec) -> float:
    """Bytes of one element; less than one for packed types."""
    bits = element_bits(spec.dtype)
    if bits is None:
        msg = f"the size of {spec.dtype} elements is not known"
        raise NoPriceError(msg)
    return bits / 8


def bytes_of(spec: TensorSpec) -> int:
    """Bytes of a tensor's distinct elements: what an expanded dimension repeats lies in memory once."""
    if spec.stride is None or 0 not in spec.stride:
        return bytes_for(spec, spec.elements)
    return bytes_for(spec, prod(size for size, stride in zip(spec.shape, spec.stride, strict=True) if stride))


def bytes_for(spec: TensorSpec, elements: int) -> int:
    """Bytes of so many elements of a tensor's type."""
    bits = element_bits(spec.dtype)
    if bits is None:
        msg = f"the size of {spec.dtype} elements is not known"
        raise NoPriceError(msg)
    return (elements * bits + 7) // 8


def extent_bytes(spec: TensorSpec) -> int | None:
    """Bytes of memory from the start of a tensor's storage to its last element; None where it is not known."""
    bits = element_bits(spec.dtype)
    if bits is None:
        return None
    if spec.stride is None:
        return spec.size_bytes
    if not spec.elements:
        return 0
    last = spec.storage_offset + sum((size - 1) * stride for size, stride in zip(spec.shape, spec.stride, strict=True))
    return ((last + 1) * bits + 7) // 8


def reads_of(call: OpSignature) -> tuple[int, ...]:
    """All of each input, once; a buffer given for the result is not read."""
    into_out = call.op.endswith("out")
    return tuple(
        [
            0 if into_out and argument.name in _OUT else bytes_of(spec)
            for argument in call.arguments
            for spec in tensors_in(argument.value)
        ]
    )


def writes_of(call: OpSignature) -> tuple[int, ...]:
    """All of each output, once."""
    return tuple(map(bytes_of, call.output_specs))

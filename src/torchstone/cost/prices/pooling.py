"""Pooling: one operation per element of the window and result."""

from math import prod

from torchstone.cost.arguments import numbers, output, tensor
from torchstone.cost.registry import NoPriceError, Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec


def _window(call: OpSignature, dims: int) -> int:
    """Elements that a window covers; one wider than the input covers no more than the input."""
    size = numbers(call, "kernel_size")
    if not size:
        msg = f"{call.op} was called without a kernel size"
        raise NoPriceError(msg)
    widths = size * dims if len(size) == 1 else size
    return prod(map(min, widths, tensor(call, "self", "input").shape[-dims:]))


def _dims(call: OpSignature) -> int:
    return next((dims for dims in (1, 2, 3) if f"{dims}d" in call.op), 1)


@price_of(
    "aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices", "aten.max_pool1d", "aten.max_pool2d",
    "aten.max_pool3d", "aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d", "aten.mkldnn_max_pool2d",
    "aten.quantized_max_pool2d", "aten.fractional_max_pool2d", "aten.fractional_max_pool3d",
    kind=Kind.POOLING,
)  # fmt: skip
def pool(call: OpSignature) -> Price:
    """The window's size per result: compare, or add and divide once for all."""
    return Price(flops=output(call).elements * _window(call, _dims(call)))


@price_of("aten.max_pool2d_with_indices_backward", "aten.max_pool3d_with_indices_backward",
          "aten.adaptive_max_pool2d_backward", "aten.adaptive_max_pool3d_backward",
          "aten.fractional_max_pool2d_backward", "aten.fractional_max_pool3d_backward",
          kind=Kind.POOLING)  # fmt: skip
def max_pool_backward(call: OpSignature) -> Price:
    """Each gradient is added at the place of its maximum."""
    return Price(flops=tensor(call, "grad_output").elements)


@price_of("aten.avg_pool1d_backward", "aten.avg_pool2d_backward", "aten.avg_pool3d_backward", kind=Kind.POOLING)
def avg_pool_backward(call: OpSignature) -> Price:
    """Each gradient is spread over its window."""
    return Price(flops=tensor(call, "grad_output").elements * _window(call, _dims(call)))


@price_of(
    "aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d", "aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d",
    "aten.adaptive_max_pool1d", "aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d",
    "aten.mkldnn_adaptive_avg_pool2d", "aten.adaptive_avg_pool3d",
    kind=Kind.POOLING,
)  # fmt: skip
def adaptive_pool(call: OpSignature) -> Price:
    """As pool, with windows as wide as each result needs to cover the input; they may overlap."""
    return Price(flops=_covered(tensor(call, "self"), output(call), _dims(call)))


@price_of("aten._adaptive_avg_pool2d_backward", "aten._adaptive_avg_pool3d_backward",
          "aten.mkldnn_adaptive_avg_pool2d_backward", kind=Kind.POOLING)  # fmt: skip
def adaptive_avg_pool_backward(call: OpSignature) -> Price:
    """Each gradient is spread over its window."""
    return Price(flops=_covered(tensor(call, "self"), tensor(call, "grad_output"), _dims(call)))


def _covered(given: TensorSpec, made: TensorSpec, dims: int) -> int:
    """Elements in all windows: result i of n covers floor(i*size/n) up to ceil((i + 1)*size/n)."""
    widths = [
        sum(-(-(i + 1) * size // n) - i * size // n for i in range(n))
        for size, n in zip(given.shape[-dims:], made.shape[-dims:], strict=True)
    ]
    return prod(made.shape[:-dims]) * prod(widths)

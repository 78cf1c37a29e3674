"""Convolutions, pooling and resampling: work per output element by the size of the window."""

from collections.abc import Mapping
from math import prod

from torchstone.cost.prices.matmul import multiply_adds
from torchstone.cost.registry import (
    NoPriceError,
    Price,
    flag,
    numbers,
    optional_tensor,
    output,
    price_of,
    tensor,
    value_of,
)
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Items, Value

# Convolutions: every output element is a dot product over the kernel and the input channels of its group.


_CHANNELS = 2  # the dimensions before the picture: batch and channels


def convolution_flops(given: TensorSpec, weight: TensorSpec, made: TensorSpec, *, transposed: bool) -> int:
    """Weight is (c_out, c_in/groups, *kernel); transposed, it is (c_in, c_out/groups, *kernel).

    Each output position (transposed: each input position) of each picture meets the whole weight once;
    stride, padding and dilation only decide how many positions there are.
    """
    where = given if transposed else made
    batched = len(where.shape) == len(weight.shape)
    batch = where.shape[0] if batched else 1
    positions = prod(where.shape[_CHANNELS if batched else 1 :])
    return multiply_adds(batch * positions * weight.elements, given)


@price_of(
    "aten.convolution",
    "aten._convolution",
    "aten.convolution_overrideable",
    "aten.cudnn_convolution",
    "aten.cudnn_convolution_transpose",
    "aten.miopen_convolution",
    "aten.mkldnn_convolution",
    "aten._slow_conv2d_forward",
    "aten.slow_conv3d_forward",
    "aten._conv_depthwise2d",
    "aten.conv_depthwise3d",
    "aten.slow_conv_transpose2d",
    "aten.slow_conv_transpose3d",
    "aten.slow_conv_dilated2d",
    "aten.slow_conv_dilated3d",
    "aten.conv1d",
    "aten.conv2d",
    "aten.conv3d",
    kind=Kind.CONVOLUTION,
)
def convolution(call: OpSignature) -> Price:
    """One dot product per output element, one addition more with a bias."""
    given, weight, made = tensor(call, "input", "self"), tensor(call, "weight"), output(call)
    flops = convolution_flops(given, weight, made, transposed=flag(call, "transposed") or "transpose" in call.op)
    bias = made.elements if optional_tensor(call, "bias") else 0
    return Price(flops=flops + bias, matmul_flops=flops)


@price_of("aten.convolution_backward", "aten.convolution_backward_overrideable", kind=Kind.CONVOLUTION)
def convolution_backward(call: OpSignature) -> Price:
    """Gradients of input and of weight: each as much as the forward one; of the bias: one sum."""
    gradient, given, weight = tensor(call, "grad_output"), tensor(call, "input"), tensor(call, "weight")
    forward = convolution_flops(given, weight, gradient, transposed=flag(call, "transposed"))
    of_input, of_weight, of_bias = _output_mask(call)
    flops = forward * (of_input + of_weight)
    return Price(flops=flops + gradient.elements * of_bias, matmul_flops=flops)


def _output_mask(call: OpSignature) -> tuple[bool, bool, bool]:
    mask = value_of(call, "output_mask")
    wanted = mask.items if isinstance(mask, Items) else (True, True, True)
    return wanted[0] is True, wanted[1] is True, wanted[2] is True


@price_of("aten.conv_tbc", kind=Kind.CONVOLUTION)
def conv_tbc(call: OpSignature) -> Price:
    """(time, batch, c_in) with weight (kernel, c_in, c_out)."""
    made, (kernel, c_in, _) = output(call), tensor(call, "weight").shape
    flops = multiply_adds(made.elements * kernel * c_in, made)
    return Price(flops=flops + made.elements, matmul_flops=flops)


# Pooling: one operation per element of the window and result.


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


# Resizing and sampling of images: a number of multiply-adds per result element, by the kernel's width.


_TAPS: Mapping[str, int] = {
    "upsample_nearest1d": 0,
    "upsample_nearest2d": 0,
    "upsample_nearest3d": 0,
    "_upsample_nearest_exact1d": 0,
    "_upsample_nearest_exact2d": 0,
    "_upsample_nearest_exact3d": 0,
    "upsample_linear1d": 2,
    "upsample_bilinear2d": 4,
    "upsample_trilinear3d": 8,
    "upsample_bicubic2d": 16,
    "upsample_lanczos2d": 36,
}
_SMOOTHED: Mapping[str, int] = {"_upsample_bilinear2d_aa": 2, "_upsample_bicubic2d_aa": 4, "_upsample_lanczos2d_aa": 6}
_GRID: Mapping[Value, int] = {0: 2, 1: 0, 2: 4}  # interpolation mode -> pixels mixed: bilinear, nearest, bicubic
_PICTURE = 2


@price_of(*(f"aten.{name}" for name in _TAPS), kind=Kind.POOLING)
def upsample(call: OpSignature) -> Price:
    """A multiply-add per input pixel used."""
    return Price(flops=2 * _TAPS[call.op.split(".")[1]] * output(call).elements)


@price_of(*(f"aten.{name}_backward" for name in _TAPS), kind=Kind.POOLING)
def upsample_backward(call: OpSignature) -> Price:
    """Each gradient goes back to the pixels it came from; nearest is one addition."""
    taps = _TAPS[call.op.split(".")[1].removesuffix("_backward")]
    return Price(flops=max(2 * taps, 1) * tensor(call, "grad_output").elements)


@price_of(*(f"aten.{name}" for name in _SMOOTHED), kind=Kind.POOLING)
def smoothed_upsample(call: OpSignature) -> Price:
    """Rows, then columns; a kernel as wide as the function, times the shrink factor where the picture shrinks."""
    return Price(flops=_smoothing(call, tensor(call, "self").shape, output(call).shape))


@price_of(*(f"aten.{name}_backward" for name in _SMOOTHED), kind=Kind.POOLING)
def smoothed_upsample_backward(call: OpSignature) -> Price:
    """Each gradient goes back to the pixels it came from: as much as the forward."""
    return Price(flops=_smoothing(call, output(call).shape, tensor(call, "grad_output").shape))


def _smoothing(call: OpSignature, given: tuple[int, ...], made: tuple[int, ...]) -> int:
    """(..., h, w) to (..., h, W), then to (..., H, W): a multiply-add per tap of each result."""
    width = _SMOOTHED[call.op.split(".")[1].removesuffix("_backward")]
    *pictures, old_rows, old_columns = given
    new_rows, new_columns = made[-_PICTURE:]
    row_taps, column_taps = (
        width * max(1, -(-old // max(new, 1))) for old, new in ((old_columns, new_columns), (old_rows, new_rows))
    )
    return 2 * prod(pictures) * new_columns * (old_rows * row_taps + new_rows * column_taps)


@price_of("aten.grid_sampler_2d", "aten._grid_sampler_2d_cpu_fallback", "aten.grid_sampler_3d", "aten.grid_sampler",
          "aten.cudnn_grid_sampler", kind=Kind.POOLING)  # fmt: skip
def grid_sample(call: OpSignature) -> Price:
    """A multiply-add per pixel used; six per coordinate to find the place."""
    made, grid = output(call), tensor(call, "grid")
    return Price(flops=2 * _pixels(call) * made.elements + 6 * grid.elements)


@price_of("aten.grid_sampler_2d_backward", "aten.grid_sampler_3d_backward", kind=Kind.POOLING)
def grid_sample_backward(call: OpSignature) -> Price:
    """Gradients of the pixels and of the grid: twice the forward."""
    gradient, grid = tensor(call, "grad_output"), tensor(call, "grid")
    return Price(flops=4 * _pixels(call) * gradient.elements + 12 * grid.elements)


def _pixels(call: OpSignature) -> int:
    """Pixels mixed per result, a number in each direction; nearest only picks one."""
    side = _GRID.get(value_of(call, "interpolation_mode"), 2)  # the cuDNN sampler has no modes
    return prod([side] * (len(tensor(call, "grid").shape) - _PICTURE))


@price_of("aten.affine_grid_generator", kind=Kind.POOLING)
def affine_grid(call: OpSignature) -> Price:
    """A (n, d+1) row times a (d+1, d) matrix per point."""
    made = output(call)
    return Price(flops=2 * made.elements * (made.shape[-1] + 1))

"""Resizing and sampling of pictures: so many multiply-adds per result element, by the kernel's width."""

from collections.abc import Mapping
from math import prod

from torchstone.cost.arguments import output, tensor, value_of
from torchstone.cost.registry import Price, price_of
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature
from torchstone.record.value import Value

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
    """Pixels mixed per result, so many in each direction; the nearest is only picked."""
    side = _GRID.get(value_of(call, "interpolation_mode"), 2)  # the cuDNN sampler has no modes
    return prod([side] * (len(tensor(call, "grid").shape) - _PICTURE))


@price_of("aten.affine_grid_generator", kind=Kind.POOLING)
def affine_grid(call: OpSignature) -> Price:
    """A (n, d+1) row times a (d+1, d) matrix per point."""
    made = output(call)
    return Price(flops=2 * made.elements * (made.shape[-1] + 1))

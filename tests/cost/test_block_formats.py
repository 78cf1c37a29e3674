"""Formats whose values share scales, by closed form: kernels, images, views and transposes of what is stored."""

from collections.abc import Callable
from math import prod

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.formats import parse_format, with_formats
from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import load
from torchstone.record.cost import Conventions, CostTable, Formats
from torchstone.record.trace import Trace
from torchstone.workflows.cost import PricingOptions, price_trace

_FLOAT = 4


def _up(number: int, to: int) -> int:
    return -(-number // to)


# Bytes of a matrix of rows and columns.
_SIZES: dict[str, Callable[[int, int], int]] = {
    "fp8": lambda rows, columns: rows * columns,
    "int8": lambda rows, columns: rows * (columns + 2 * _up(columns, 128)),
    "int4": lambda rows, columns: _up(rows * columns, 2) + 2 * rows * _up(columns, 128),
    "mxfp8": lambda rows, columns: rows * (columns + _up(columns, 32)),
    "mxfp6": lambda rows, columns: _up(rows * columns * 6, 8) + rows * _up(columns, 32),
    "mxfp4": lambda rows, columns: _up(rows * columns, 2) + rows * _up(columns, 32),
    "nvfp4": lambda rows, columns: _up(rows * columns, 2) + rows * _up(columns, 16),
    "float8_block": lambda rows, columns: rows * columns + 4 * _up(rows, 128) * _up(columns, 128),
    "bfloat8_b": lambda rows, columns: _up(rows, 32) * _up(columns, 32) * 1088,
    "bfloat4_b": lambda rows, columns: _up(rows, 32) * _up(columns, 32) * 576,
}


def _weights(trace: Trace, name: str) -> CostTable:
    return price(with_formats(trace, Formats(weights=parse_format(name))))


def _activations(trace: Trace, name: str) -> CostTable:
    return price(with_formats(trace, Formats(activations=parse_format(name))))


@pytest.mark.parametrize(
    ("layer", "kernel", "size"),
    [
        (nn.Conv1d, (20, 10, 3), 50),
        (nn.Conv2d, (48, 3, 7, 7), 30),
        (nn.Conv2d, (64, 64, 1, 1), 9),
        (nn.Conv3d, (6, 4, 3, 3, 3), 8),
    ],
)
def test_the_kernels_of_a_convolution_are_one_matrix(
    layer: Callable[..., nn.Module], kernel: tuple[int, ...], size: int
) -> None:
    """A row for each output: a kernel of 1 x 1 takes as much as a linear layer."""
    outputs, inputs, *window = kernel
    images = torch.ones(1, inputs, *(size for _ in window))
    trace = capture(layer(inputs, outputs, window[0], bias=False), images)
    for name, bytes_of in _SIZES.items():
        table = _weights(trace, name)
        assert table.totals.parameter_bytes == bytes_of(outputs, prod(kernel[1:])), name
        assert table.peak.weights_bytes == table.totals.parameter_bytes, name


def test_the_kernels_of_a_depthwise_convolution_are_one_matrix() -> None:
    trace = capture(nn.Conv2d(40, 40, 3, groups=40, bias=False), torch.ones(1, 40, 9, 9))
    for name, bytes_of in _SIZES.items():
        assert _weights(trace, name).totals.parameter_bytes == bytes_of(40, 9), name


def test_a_board_with_tiles_holds_kernels_as_often_as_they_are_stored() -> None:
    trace = capture(nn.Conv2d(64, 64, 1, bias=False), torch.ones(1, 64, 32, 32))
    formats = Formats(weights="bfloat8_b", activations="bfloat8_b")
    table = price(with_formats(trace, formats))
    images = 2 * 32 * 2 * 1088  # 1,024 pixels of 64 channels, before and after
    assert table.totals.peak_bytes == 4 * 1088 + images
    on_board = price_trace(trace, PricingOptions(conventions=Conventions(formats=formats), hardware="n150"))
    assert on_board.totals.peak_bytes == table.totals.peak_bytes


@pytest.mark.parametrize(("inputs", "outputs"), [(31, 33), (127, 129), (130, 64), (2880, 7)])
def test_a_linear_layer_holds_and_reads_its_weight_as_it_is_stored(inputs: int, outputs: int) -> None:
    """It multiplies with the transposed weight, whose rows would have other blocks."""
    trace = capture(nn.Linear(inputs, outputs, bias=False), torch.ones(3, inputs))
    for name, bytes_of in _SIZES.items():
        table = _weights(trace, name)
        stored = bytes_of(outputs, inputs)
        assert table.peak.total_bytes == stored + _FLOAT * 3 * (inputs + outputs), name
        assert table.totals.bytes_read == stored + _FLOAT * 3 * inputs, name


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fused = nn.Parameter(torch.ones(3 * 32, 40))

    def forward(self, x: Tensor) -> Tensor:
        first, second, third = self.fused.chunk(3)
        return x @ first.t() + x @ second.t() + x @ third.t()


class Neighbours(nn.Module):
    """Two parameters in one piece of memory."""

    def __init__(self) -> None:
        super().__init__()
        both = torch.ones(32, 16)
        self.first, self.second = nn.Parameter(both[:16]), nn.Parameter(both[16:])

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.first + x @ self.second


@pytest.mark.parametrize(("model", "rows", "columns"), [(Parts(), 96, 40), (Neighbours(), 32, 16)])
def test_parts_of_a_weight_take_their_part_of_its_blocks(model: nn.Module, rows: int, columns: int) -> None:
    trace = capture(model, torch.ones(2, columns))
    for name in ("fp8", "int8", "mxfp8", "mxfp4", "nvfp4"):
        table = _weights(trace, name)
        assert table.totals.parameter_bytes == _SIZES[name](rows, columns), name
        assert table.peak.weights_bytes == _SIZES[name](rows, columns), name


class Heads(nn.Module):
    """Rows of 6 heads of 40, seen as heads and transposed."""

    def forward(self, x: Tensor) -> Tensor:
        heads = (x + 1).view(2, 7, 6, 40).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads)


def test_views_of_an_activation_do_not_fill_blocks_of_their_own() -> None:
    trace = capture(Heads(), torch.ones(2, 7, 240))
    for name in ("bfloat8_b", "bfloat4_b", "mxfp8"):
        row, result = 2 * _SIZES[name](7, 240), 2 * 6 * _SIZES[name](7, 40)
        scales = 2 * 6 * 7 * _FLOAT  # log-sum-exp of each row of scores, in the format, too
        peak = _activations(trace, name).peak.total_bytes
        assert 2 * row + result <= peak <= 2 * row + result + max(scales, 2 * 1088), name


@pytest.mark.parametrize("name", ["bfloat8_b", "bfloat4_b", "mxfp8"])
def test_images_in_a_format_lie_as_rows_of_pixels(name: str) -> None:
    trace = capture(nn.Conv2d(64, 32, 1, bias=False), torch.ones(2, 64, 7, 7))
    table = _activations(trace, name)
    assert table.peak.activations_bytes == _SIZES[name](2 * 49, 64) + _SIZES[name](2 * 49, 32)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("model", ["tiny:mamba", "tiny:mamba2", "tiny:jamba", "tiny:lfm2"])
def test_states_are_matrices_whatever_computed_them(model: str, phase: str) -> None:
    """A convolution writes into some of them, and results of one into others."""
    found, inputs = load(model, options=InputOptions(phase="decode", batch_size=3, cache_len=5))
    cache = inputs.kwargs["cache_params" if "cache_params" in inputs.kwargs else "past_key_values"]
    kept = [
        one
        for layer in cache.layers
        for field in vars(layer).values()
        for one in (field.values() if isinstance(field, dict) else [field])
        if isinstance(one, Tensor)
    ]
    if phase == "prefill":
        found, inputs = load(model, options=InputOptions(batch_size=3, seq_len=5))
        inputs.kwargs["use_cache"] = True
    trace = capture(found, inputs)
    for name, size in _SIZES.items():
        table = price(with_formats(trace, Formats(kv_cache=parse_format(name))))
        assert table.cache is not None
        assert table.cache.size_bytes == sum(prod(one.shape[:-2]) * size(*one.shape[-2:]) for one in kept), name


def test_packed_weights_keep_the_bytes_in_which_they_are_stored() -> None:
    """As torchao leaves them: a matmul reads a subclass of tensor that is made of others."""
    trace = capture(nn.Linear(64, 32, bias=False), torch.ones(3, 64))
    table = trace.recorded_tensors
    stored = 64 * 32 + 32 * _FLOAT
    packed = tuple(
        replace(spec, subclass="torchao.Int8Tensor", stored_bytes=stored) if spec.elements == 64 * 32 else spec
        for spec in table.specs
    )
    trace = replace(trace, recorded_tensors=replace(table, specs=packed))
    for name in ("fp8", "mxfp4", "bfloat8_b"):
        found = _weights(trace, name)
        assert found.totals.parameter_bytes == found.peak.weights_bytes == stored, name

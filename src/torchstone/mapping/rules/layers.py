"""Ops that are layers of their own: norms, softmax, attention, convolutions, pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchstone.mapping.table import Library, NotMappedError, Number, Tensor, maps

_TILE = 32
_MATRIX, _IMAGE, _SIGNAL = 2, 4, 3


# --- Softmax and norms ---


@maps("aten._softmax", "aten.softmax", "aten._safe_softmax")
def softmax(tt: Library, self: Tensor, dim: int, **_: object) -> Tensor:
    """The same op."""
    return tt.softmax(self, dim % len(self.shape))


@maps("aten._log_softmax", "aten.log_softmax")
def log_softmax(tt: Library, self: Tensor, dim: int, **_: object) -> Tensor:
    """The logarithm of a softmax."""
    return tt.log(tt.softmax(self, dim % len(self.shape)))


def _row(tt: Library, tensor: Tensor, size: int) -> Tensor:
    return None if tensor is None else tt.reshape(tensor, [1, size])


@maps("aten.native_layer_norm", "aten.layer_norm")
def layer_norm(
    tt: Library,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor = None,
    bias: Tensor = None,
    eps: float = 1e-5,
    **_: object,
) -> Tensor:
    """Over the last dimensions; several of them become one. The statistics serve the backward pass alone."""
    count = math.prod(normalized_shape)
    shape = list(input.shape)
    rows = tt.reshape(input, [*shape[: -len(normalized_shape)], count]) if len(normalized_shape) > 1 else input
    found = tt.layer_norm(rows, epsilon=eps, weight=_row(tt, weight, count), bias=_row(tt, bias, count))
    return tt.reshape(found, shape) if len(normalized_shape) > 1 else found


@maps("aten._fused_rms_norm", "aten.rms_norm")
def rms_norm(
    tt: Library, input: Tensor, normalized_shape: Sequence[int], weight: Tensor = None, eps: Number = None
) -> Tensor:
    """Over the last dimension."""
    if len(normalized_shape) > 1:
        msg = "an RMS norm over several dimensions"
        raise NotMappedError(msg)
    return tt.rms_norm(
        input, epsilon=1.1920929e-07 if eps is None else eps, weight=_row(tt, weight, normalized_shape[0])
    )


@maps("aten.native_group_norm", "aten.group_norm")
def group_norm(
    tt: Library, input: Tensor, weight: Tensor = None, bias: Tensor = None, eps: float = 1e-5, **sizes: object
) -> Tensor:
    """A layer norm over each group, then the weights of the channels."""
    groups = sizes.get("group", sizes.get("num_groups"))
    shape = list(input.shape)
    batch, channels = shape[0], shape[1]
    rows = tt.reshape(input, [batch, groups, math.prod(shape[1:]) // groups])
    found = tt.reshape(tt.layer_norm(rows, epsilon=eps), shape)
    return _per_channel(tt, found, weight, bias, channels)


def _per_channel(tt: Library, tensor: Tensor, weight: Tensor, bias: Tensor, channels: int) -> Tensor:
    wide = [1, channels, *[1] * (len(tensor.shape) - 2)]
    found = tensor if weight is None else tt.multiply(tensor, tt.reshape(weight, wide))
    return found if bias is None else tt.add(found, tt.reshape(bias, wide))


@maps("aten.native_batch_norm", "aten._native_batch_norm_legit_no_training", "aten._native_batch_norm_legit")
@maps("aten.batch_norm", "aten._batch_norm_no_update")
def batch_norm(
    tt: Library,
    input: Tensor,
    weight: Tensor = None,
    bias: Tensor = None,
    running_mean: Tensor = None,
    running_var: Tensor = None,
    eps: float = 1e-5,
    training: bool = False,
    **_: object,
) -> Tensor:
    """With the statistics of training: a scale and a shift for each channel."""
    if training or running_mean is None or running_var is None:
        msg = "a batch norm that measures its batch"
        raise NotMappedError(msg)
    channels = input.shape[1]
    scale = tt.rsqrt(tt.add(running_var, eps))
    scale = scale if weight is None else tt.multiply(scale, weight)
    shift = tt.neg(tt.multiply(running_mean, scale))
    shift = shift if bias is None else tt.add(shift, bias)
    return _per_channel(tt, input, scale, shift, channels)


# --- Attention ---


@maps(
    "aten._scaled_dot_product_flash_attention_for_cpu", "aten._scaled_dot_product_flash_attention",
    "aten._scaled_dot_product_efficient_attention", "aten.scaled_dot_product_attention",
    "aten._scaled_dot_product_attention_math",
)  # fmt: skip
def attention(
    tt: Library,
    query: Tensor,
    key: Tensor,
    value: Number,
    attn_mask: Tensor = None,
    is_causal: bool = False,
    scale: Tensor = None,
    attn_bias: Tensor = None,
    **_: object,
) -> Tensor:
    """Ttnn's fused attention where heads fill tiles and sizes agree; otherwise products and a softmax."""
    mask = attn_bias if attn_mask is None else attn_mask
    size = query.shape[-1]
    factor = 1 / math.sqrt(size) if scale is None else scale
    rows, columns = query.shape[-2], key.shape[-2]
    fused = len(query.shape) == _IMAGE and size % _TILE == 0 and value.shape[-1] == size
    fused = fused and (not is_causal or rows == columns) and query.shape[1] % key.shape[1] == 0
    if fused and (mask is None or (rows % _TILE == 0 and columns % _TILE == 0 and not is_causal)):
        heads = 1 if mask is None or len(mask.shape) < _IMAGE else mask.shape[1]
        wide = None if mask is None else tt.broadcast_to(_mask(tt, mask), [query.shape[0], heads, rows, columns])
        fused_op = tt.transformer.scaled_dot_product_attention
        return fused_op(query, key, value, attn_mask=wide, is_causal=is_causal, scale=factor)
    return _plain_attention(tt, query, key, value, _mask(tt, mask), is_causal=is_causal, scale=factor)


def _mask(tt: Library, mask: Tensor) -> Tensor:
    """What is added to the scores; a mask of booleans keeps where it is true."""
    if mask is None or mask.dtype != "bool":
        return mask
    kept = tt.as_float(mask)
    return tt.multiply(tt.subtract(kept, 1.0), 1e9)


def _plain_attention(
    tt: Library, query: Tensor, key: Tensor, value: Number, mask: Tensor, *, is_causal: bool, scale: float
) -> Tensor:
    if query.shape[:-2] != key.shape[:-2]:
        times = query.shape[1] // key.shape[1]
        key, value = (_repeated_heads(tt, one, times) for one in (key, value))
    scores = tt.multiply(tt.matmul(query, tt.transpose(key, len(key.shape) - 2, len(key.shape) - 1)), scale)
    if is_causal:
        rows, columns = query.shape[-2], key.shape[-2]
        upper = tt.triu(tt.full([rows, columns], 1.0, "float32"), diagonal=1)
        scores = tt.add(scores, tt.multiply(upper, -1e9))
    if mask is not None:
        scores = tt.add(scores, mask)
    return tt.matmul(tt.softmax(scores, len(scores.shape) - 1), value)


def _repeated_heads(tt: Library, tensor: Tensor, times: int) -> Tensor:
    batch, heads, rows, size = tensor.shape
    wide = tt.repeat(tt.reshape(tensor, [batch, heads, 1, rows * size]), [1, 1, times, 1])
    return tt.reshape(wide, [batch, heads * times, rows, size])


# --- Convolutions and pools: ttnn takes images as rows of channels ---


def _pair(value: Number) -> list[int]:
    sizes = [value] if isinstance(value, int) else list(value)
    return sizes * 2 if len(sizes) == 1 else sizes


def _as_rows(tt: Library, image: Tensor) -> Tensor:
    batch, channels, height, width = image.shape
    last = tt.permute(image, [0, 2, 3, 1])
    return tt.as_rows(tt.reshape(last, [1, 1, batch * height * width, channels]))


def _as_image(tt: Library, rows: Tensor, batch: int, channels: int, size: Sequence[int]) -> Tensor:
    found = tt.reshape(tt.as_tiles(rows), [batch, *size, channels])
    return tt.permute(found, [0, 3, 1, 2])


def _out_size(size: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


@maps("aten.convolution", "aten._convolution")
def convolution(
    tt: Library,
    input: Tensor,
    weight: Tensor,
    bias: Tensor = None,
    stride: Tensor = 1,
    padding: Tensor = 0,
    dilation: Tensor = 1,
    transposed: bool = False,
    output_padding: Tensor = 0,
    groups: int = 1,
    **_: object,
) -> Tensor:
    """Images as rows of channels; a signal is an image of height 1."""
    if len(input.shape) == _SIGNAL:
        batch, channels, length = input.shape
        image = tt.reshape(input, [batch, channels, 1, length])
        kernel = tt.reshape(weight, [weight.shape[0], weight.shape[1], 1, weight.shape[2]])
        wide = [[1, *one] if isinstance(one, list | tuple) else [1, one] for one in (stride, dilation)]
        padded = [0, *(padding if isinstance(padding, list | tuple) else [padding])]
        more = [0, *(output_padding if isinstance(output_padding, list | tuple) else [output_padding])]
        found = convolution(tt, image, kernel, bias, wide[0], padded, wide[1], transposed, more, groups)
        return tt.reshape(found, [found.shape[0], found.shape[1], found.shape[3]])
    if len(input.shape) != _IMAGE:
        msg = "a convolution over three dimensions"
        raise NotMappedError(msg)
    size = {"stride": _pair(stride), "padding": _pair(padding), "dilation": _pair(dilation)}
    options = {
        "batch": input.shape[0], "in_channels": input.shape[1], "height": input.shape[2], "width": input.shape[3],
        "kernel": list(weight.shape[2:]), **size, "groups": groups,
    }  # fmt: skip
    rows = _as_rows(tt, input)
    if transposed:
        options |= {"out_channels": weight.shape[1] * groups, "output_padding": _pair(output_padding)}
        found, out = tt.conv_transpose_rows(rows, weight, bias, options)
    else:
        options["out_channels"] = weight.shape[0]
        found, out = tt.conv_rows(rows, weight, bias, options)
    return _as_image(tt, found, input.shape[0], options["out_channels"], out)


@maps("aten.max_pool2d_with_indices", "aten.max_pool2d")
def max_pool(
    tt: Library,
    self: Tensor,
    kernel_size: Tensor,
    stride: Tensor = (),
    padding: Tensor = 0,
    dilation: Tensor = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The indices of the second result are not made: inference does not read them."""
    if ceil_mode:
        msg = "a pool that rounds up"
        raise NotMappedError(msg)
    kernel, pad, spread = _pair(kernel_size), _pair(padding), _pair(dilation)
    step = _pair(stride) if stride not in ((), [], None) else kernel
    batch, channels, height, width = self.shape
    rows = tt.max_pool2d(
        _as_rows(tt, self), batch_size=batch, input_h=height, input_w=width, channels=channels, kernel_size=kernel,
        stride=step, padding=pad, dilation=spread,
    )  # fmt: skip
    out = [_out_size(size, kernel[at], step[at], pad[at], spread[at]) for at, size in enumerate((height, width))]
    return _as_image(tt, rows, batch, channels, out)


@maps("aten.avg_pool2d")
def avg_pool(
    tt: Library,
    self: Tensor,
    kernel_size: Tensor,
    stride: Tensor = (),
    padding: Tensor = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Tensor = None,
) -> Tensor:
    """Means of windows; one window over the whole image is a mean."""
    kernel, pad = _pair(kernel_size), _pair(padding)
    if (
        pad == [0, 0]
        and divisor_override is None
        and all(k >= size for k, size in zip(kernel, self.shape[-2:], strict=True))
    ):
        return tt.mean(self, [len(self.shape) - 2, len(self.shape) - 1], keepdim=True)
    if ceil_mode or divisor_override is not None:
        msg = "a pool that rounds up or has its own divisor"
        raise NotMappedError(msg)
    step = _pair(stride) if stride not in ((), [], None) else kernel
    batch, channels, height, width = self.shape
    rows = tt.avg_pool2d(
        _as_rows(tt, self), batch_size=batch, input_h=height, input_w=width, channels=channels, kernel_size=kernel,
        stride=step, padding=pad, count_include_pad=count_include_pad,
    )  # fmt: skip
    out = [_out_size(size, kernel[at], step[at], pad[at]) for at, size in enumerate((height, width))]
    return _as_image(tt, rows, batch, channels, out)


@maps("aten._adaptive_avg_pool2d", "aten.adaptive_avg_pool2d")
def adaptive_avg_pool(tt: Library, self: Tensor, output_size: Tensor) -> Tensor:
    """Means of windows, where the sizes divide."""
    height, width = self.shape[-2:]
    wanted = _pair(output_size)
    if height % wanted[0] or width % wanted[1]:
        msg = "an adaptive pool with windows of different sizes"
        raise NotMappedError(msg)
    if wanted == [1, 1]:
        rank = len(self.shape)
        return tt.mean(self, [rank - 2, rank - 1], keepdim=True)
    kernel = [height // wanted[0], width // wanted[1]]
    return avg_pool(tt, self, kernel, kernel)


@maps("aten.upsample_nearest2d")
def upsample_nearest(
    tt: Library, input: Tensor = None, output_size: Tensor = None, self: Tensor = None, **scales: object
) -> Tensor:
    """Whole factors alone."""
    return _upsampled(tt, self if input is None else input, output_size, scales, "nearest")


@maps("aten.upsample_linear1d")
def upsample_linear(
    tt: Library,
    output_size: Tensor = None,
    input: Tensor = None,
    self: Tensor = None,
    align_corners: bool = False,
    **scales: Any,
) -> Tensor:
    """A product with the weights of both neighbours."""
    signal = self if input is None else input
    size = signal.shape[-1]
    factor = (scales.get("scale_factors") or [scales.get("scales")])[0]
    wanted = int(size * factor) if output_size is None else output_size[0]
    if wanted == size:
        return signal
    weights = _neighbours(tt, size, wanted, factor, align_corners=align_corners, dtype=signal.dtype)
    return tt.matmul(signal, tt.transpose(weights, 0, 1))


def _neighbours(
    tt: Library, size: int, wanted: int, factor: float | None, *, align_corners: bool, dtype: str
) -> Tensor:
    """One row for each new element: the weights of the old ones, which only its two neighbours have."""
    if align_corners:
        step, offset = (size - 1) / (wanted - 1) if wanted > 1 else 0.0, 0.0
    else:
        step = 1 / factor if factor else size / wanted
        offset = step / 2 - 0.5
    places = tt.clamp(tt.add(tt.multiply(tt.arange(0, wanted, 1, dtype), step), offset), min=0.0, max=size - 1.0)
    old = tt.broadcast_to(tt.reshape(tt.arange(0, size, 1, dtype), [1, size]), [wanted, size])
    distance = tt.abs(tt.subtract(tt.broadcast_to(tt.reshape(places, [wanted, 1]), [wanted, size]), old))
    return tt.relu(tt.rsub(distance, 1.0))


@maps("aten.upsample_bicubic2d")
def upsample_bicubic(
    tt: Library, output_size: Tensor, self: Tensor = None, input: Tensor = None, **_: object
) -> Tensor:
    """Only to the size that an image has, where it changes nothing."""
    image = self if input is None else input
    if output_size is None or list(output_size) != list(image.shape[-2:]):
        msg = "bicubic interpolation"
        raise NotMappedError(msg)
    return image


@maps("aten._weight_norm_interface")
def weight_norm(tt: Library, v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """The direction of the one, the length of the other; the lengths are its second result."""
    rank = len(v.shape)
    others = [place for place in range(rank) if place != dim % rank]
    length = tt.sqrt(tt.sum(tt.square(v), others, keepdim=True))
    return tt.multiply(v, tt.div(g, length)), length


@maps("aten.upsample_bilinear2d")
def upsample_bilinear(
    tt: Library,
    input: Tensor = None,
    output_size: Tensor = None,
    self: Tensor = None,
    align_corners: bool = False,
    **scales: Any,
) -> Tensor:
    """Ttnn's op for whole factors; otherwise products with the weights of the neighbours, by row, then by column."""
    image = self if input is None else input
    height, width = image.shape[-2:]
    factors = scales.get("scale_factors") or [scales.get("scales_h"), scales.get("scales_w")]
    wanted = [int(height * factors[0]), int(width * factors[1])] if output_size is None else list(output_size)
    if not align_corners and wanted[0] % height == 0 and wanted[1] % width == 0:
        return _upsampled(tt, image, wanted, {}, "bilinear")
    how: dict[str, Any] = {"align_corners": align_corners, "dtype": image.dtype}
    across = _neighbours(tt, width, wanted[1], factors[1], **how)
    down = _neighbours(tt, height, wanted[0], factors[0], **how)
    rows = tt.transpose(tt.matmul(image, tt.transpose(across, 0, 1)), 2, 3)
    return tt.transpose(tt.matmul(rows, tt.transpose(down, 0, 1)), 2, 3)


def _upsampled(tt: Library, image: Tensor, output_size: Tensor, scales: Tensor, mode: str) -> Tensor:
    height, width = image.shape[-2:]
    factors = scales.get("scale_factors")
    wanted = [int(height * factors[0]), int(width * factors[1])] if output_size is None else list(output_size)
    if wanted == [height, width]:
        return image
    if mode == "nearest" and height % wanted[0] == 0 and width % wanted[1] == 0:
        steps = [1, 1, height // wanted[0], width // wanted[1]]
        return tt.slice(image, [0, 0, 0, 0], list(image.shape), steps)
    if wanted[0] % height or wanted[1] % width:
        msg = "interpolation by a factor that is not whole"
        raise NotMappedError(msg)
    last = tt.as_rows(tt.permute(image, [0, 2, 3, 1]))
    found = tt.upsample(last, [wanted[0] // height, wanted[1] // width], mode=mode)
    return tt.permute(tt.as_tiles(found), [0, 3, 1, 2])

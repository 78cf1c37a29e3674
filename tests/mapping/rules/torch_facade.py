"""ttnn's ops as rules call them, computed by torch on the CPU: what a rule gives must be what its ATen op gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_LONG = {"multiply": "mul", "subtract": "sub", "concat": "cat", "repeat": "tile"}
_DTYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64, "bool": torch.bool,
           "int32": torch.int32}  # fmt: skip


@dataclass
class Handle:
    """A tensor of torch that looks like one of the device."""

    raw: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.raw.shape)

    @property
    def dtype(self) -> str:
        return str(self.raw.dtype).removeprefix("torch.")


class TorchFacade:
    """The ops of ttnn by their documented meaning."""

    def __init__(self) -> None:
        self.transformer = self
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        own = getattr(type(self), f"op_{name}", None)

        def call(*arguments: Any, **named: Any) -> Any:
            self.called.append(name)
            given = [raw(one) for one in arguments]
            names = {key: raw(value) for key, value in named.items()}
            if own is not None:
                return wrapped(own(self, *given, **names))
            function = getattr(torch, _LONG.get(name, name), None) or getattr(functional, name)
            return wrapped(function(*given, **names))

        return call

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, Handle)

    def as_dtype(self, tensor: Handle, dtype: str) -> Handle:
        return Handle(tensor.raw.to(_DTYPES[dtype]))

    def as_float(self, tensor: Handle) -> Handle:
        return tensor if tensor.raw.is_floating_point() else Handle(tensor.raw.double())

    def as_index(self, tensor: Handle) -> Handle:
        return Handle(tensor.raw.long())

    def as_rows(self, tensor: Handle) -> Handle:
        return tensor

    as_tiles = as_rows

    def broadcast_to(self, tensor: Handle, shape: Sequence[int]) -> Handle:
        return Handle(tensor.raw.broadcast_to(list(shape)))

    def as_complex(self, tensor: Handle) -> Handle:
        return Handle(torch.view_as_complex(tensor.raw.contiguous()))

    def as_real(self, tensor: Handle) -> Handle:
        return Handle(torch.view_as_real(tensor.raw))

    def nothing(self, shape: Sequence[int], dtype: str) -> Handle:
        return Handle(torch.empty(list(shape), dtype=_DTYPES[dtype]))

    def random(self, shape: Sequence[int], dtype: str) -> Handle:
        return Handle(torch.rand(list(shape), dtype=_DTYPES[dtype]))

    def full(self, shape: Sequence[int], value: Any, dtype: str) -> Handle:
        return Handle(torch.full(list(shape), value, dtype=_DTYPES[dtype]))

    def full_like(self, tensor: Handle, value: float) -> Handle:
        return Handle(torch.full_like(tensor.raw, value))

    def arange(self, start: Any, end: Any, step: Any, dtype: str) -> Handle:
        return Handle(torch.arange(start, end, step, dtype=_DTYPES[dtype]))

    def conv_rows(self, rows: Handle, weight: Handle, bias: Handle | None, options: dict[str, Any]) -> Any:
        return self._conv(functional.conv2d, rows, weight, bias, options)

    def conv_transpose_rows(self, rows: Handle, weight: Handle, bias: Handle | None, options: dict[str, Any]) -> Any:
        return self._conv(functional.conv_transpose2d, rows, weight, bias, options)

    def _conv(self, function: Any, rows: Handle, weight: Handle, bias: Handle | None, options: dict[str, Any]) -> Any:
        image = _image(rows.raw, options["batch"], options["height"], options["width"], options["in_channels"])
        more = {"output_padding": options["output_padding"]} if "output_padding" in options else {}
        names = {name: options[name] for name in ("stride", "padding", "dilation", "groups")}
        found = function(image, weight.raw, None if bias is None else bias.raw, **names, **more)
        return Handle(_rows(found)), list(found.shape[2:])

    # --- Where ttnn's arguments are not torch's ---

    def op_gelu(self, x: Tensor, fast_and_approximate_mode: bool) -> Tensor:
        return functional.gelu(x, approximate="tanh" if fast_and_approximate_mode else "none")

    def op_log_sigmoid(self, x: Tensor) -> Tensor:
        return functional.logsigmoid(x)

    def op_expand(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return x.expand(list(shape))

    def op_slice(self, x: Tensor, starts: list[int], ends: list[int], steps: list[int] | None = None) -> Tensor:
        return x[tuple(slice(*one) for one in zip(starts, ends, steps or [1] * len(starts), strict=True))]

    def op_pad(self, x: Tensor, padding: Sequence[tuple[int, int]], value: float) -> Tensor:
        return functional.pad(x, [size for pair in reversed(padding) for size in pair], value=value)

    def op_linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, transpose_b: bool = False) -> Tensor:
        product = x @ (weight.mT if transpose_b else weight)
        return product if bias is None else product + bias

    def op_max(self, x: Tensor, dim: Any, keepdim: bool) -> Tensor:
        return torch.amax(x.double() if x.dtype == torch.bool else x, dim, keepdim=keepdim)

    def op_min(self, x: Tensor, dim: Any, keepdim: bool) -> Tensor:
        return torch.amin(x.double() if x.dtype == torch.bool else x, dim, keepdim=keepdim)

    def op_embedding(self, indices: Tensor, weight: Tensor) -> Tensor:
        return functional.embedding(indices, weight)

    def op_rsub(self, x: Tensor, other: Any) -> Tensor:
        return torch.rsub(x, other)

    def op_layer_norm(self, x: Tensor, epsilon: float, weight: Any = None, bias: Any = None) -> Tensor:
        found = functional.layer_norm(x, x.shape[-1:], eps=epsilon)
        found = found if weight is None else found * weight
        return found if bias is None else found + bias

    def op_rms_norm(self, x: Tensor, epsilon: float, weight: Any = None) -> Tensor:
        found = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon)
        return found if weight is None else found * weight

    def op_scaled_dot_product_attention(
        self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Any, is_causal: bool, scale: float
    ) -> Tensor:
        shared = k.shape[1] != q.shape[1]
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=attn_mask, is_causal=is_causal, scale=scale, enable_gqa=shared
        )

    def op_max_pool2d(self, rows: Tensor, **o: Any) -> Tensor:
        image = _image(rows, o["batch_size"], o["input_h"], o["input_w"], o["channels"])
        return _rows(functional.max_pool2d(image, o["kernel_size"], o["stride"], o["padding"], o["dilation"]))

    def op_avg_pool2d(self, rows: Tensor, **o: Any) -> Tensor:
        image = _image(rows, o["batch_size"], o["input_h"], o["input_w"], o["channels"])
        counted = o["count_include_pad"]
        return _rows(
            functional.avg_pool2d(image, o["kernel_size"], o["stride"], o["padding"], count_include_pad=counted)
        )

    def op_upsample(self, x: Tensor, factors: Sequence[int], mode: str) -> Tensor:
        image = x.permute(0, 3, 1, 2)
        size = [image.shape[2] * factors[0], image.shape[3] * factors[1]]
        return functional.interpolate(image, size=size, mode=mode).permute(0, 2, 3, 1)

    def op_sort(self, x: Tensor, dim: int, descending: bool) -> Any:
        return list(torch.sort(x, dim=dim, descending=descending))

    def op_topk(self, x: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> Any:
        return list(torch.topk(x, k, dim, largest, sorted))

    def op_from_device(self, x: Tensor) -> Tensor:
        return x


def _image(rows: Tensor, batch: int, height: int, width: int, channels: int) -> Tensor:
    return rows.reshape(batch, height, width, channels).permute(0, 3, 1, 2)


def _rows(image: Tensor) -> Tensor:
    batch, channels, height, width = image.shape
    return image.permute(0, 2, 3, 1).reshape(1, 1, batch * height * width, channels)


def raw(value: Any) -> Any:
    if isinstance(value, Handle):
        return value.raw
    return [raw(one) for one in value] if isinstance(value, list) else value


def wrapped(value: Any) -> Any:
    if isinstance(value, Tensor):
        return Handle(value)
    return [wrapped(one) for one in value] if isinstance(value, list | tuple) else value

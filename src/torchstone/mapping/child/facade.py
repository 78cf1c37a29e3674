"""ttnn as rules see it: ops under their own names, tensors as handles that know torch's shape and element type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torchstone.mapping.child.footprint import Probe
from torchstone.mapping.table import NotMappedError

COMPLEX = "complex64"
COMPARISONS = frozenset({
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf",
    "isfinite",
})  # fmt: skip
_WHOLE = ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")


@dataclass
class Handle:
    """A tensor of the device."""

    raw: Any
    shape: tuple[int, ...]
    dtype: str  # that of torch
    name: str = ""  # its variable in generated code


@dataclass(frozen=True)
class Variant:
    """How the inputs of a call are laid out; the usual one is bfloat16 in tiles in DRAM."""

    title: str = ""
    float_dtype: str = "bfloat16"
    rows: bool = False
    l1: bool = False
    pad: bool = False  # sizes of the last two dimensions up to whole tiles
    parts: int = 1  # of the first dimension: one of them, as a program that splits its work would call it
    shards: str = ""  # HEIGHT, WIDTH or BLOCK: inputs in L1, spread over cores


class Facade:
    """Calls ttnn, and keeps each call as a line of code."""

    def __init__(self, device: object, variant: Variant | None = None, probe: Probe | None = None) -> None:
        import ttnn

        self._ttnn = ttnn
        self._device = device
        self.variant = variant or Variant()
        self.calls: list[str] = []  # the ops that were called
        self.lines: list[str] = []
        self._made = 0
        self._probe = probe

    def __getattr__(self, name: str) -> Any:
        return _Namespace(self, getattr(self._ttnn, name), name)

    # --- What rules ask for beside ops ---

    @staticmethod
    def is_tensor(value: object) -> bool:
        """Whether a value is a tensor."""
        return isinstance(value, Handle)

    def as_dtype(self, tensor: Handle, dtype: str) -> Handle:
        """Another element type; on the device, floats are bfloat16 and integers int32."""
        wanted = self.device_dtype(dtype)
        found = tensor if tensor.raw.dtype == wanted[0] else self._typecast(tensor, wanted)
        return Handle(found.raw, tensor.shape, dtype, found.name)

    def as_float(self, tensor: Handle) -> Handle:
        """In floating point."""
        is_float = tensor.dtype not in _WHOLE
        return tensor if is_float else self.as_dtype(tensor, "float32")

    def as_index(self, tensor: Handle) -> Handle:
        """As unsigned integers, in rows."""
        unsigned = self._typecast(tensor, (self._ttnn.uint32, "ttnn.uint32"))
        return self.as_rows(Handle(unsigned.raw, tensor.shape, tensor.dtype, unsigned.name))

    def as_rows(self, tensor: Handle) -> Handle:
        """In row-major layout."""
        return self._laid_out(tensor, self._ttnn.ROW_MAJOR_LAYOUT, "ttnn.ROW_MAJOR_LAYOUT")

    def as_tiles(self, tensor: Handle) -> Handle:
        """In tiles."""
        return self._laid_out(tensor, self._ttnn.TILE_LAYOUT, "ttnn.TILE_LAYOUT")

    def broadcast_to(self, tensor: Handle, shape: Sequence[int]) -> Handle:
        """Repeated to a shape."""
        padded = [1] * (len(shape) - len(tensor.shape)) + list(tensor.shape)
        source = tensor if padded == list(tensor.shape) else self.reshape(tensor, padded)
        return source if padded == list(shape) else self.expand(source, list(shape))

    def as_complex(self, tensor: Handle) -> Handle:
        """A tensor with two parts as its last dimension, as one of complex numbers; nothing happens on the device."""
        return Handle(tensor.raw, tensor.shape[:-1], COMPLEX, tensor.name)

    def as_real(self, tensor: Handle) -> Handle:
        """The other way round."""
        return Handle(tensor.raw, (*tensor.shape, 2), "float32", tensor.name)

    def nothing(self, shape: Sequence[int], dtype: str) -> Handle:
        """A tensor without elements: it does not lie on the device."""
        return Handle(None, tuple(shape), dtype, "None")

    def random(self, shape: Sequence[int], dtype: str) -> Handle:
        """Even numbers from 0 to 1."""
        kind = _Code(*self.device_dtype(dtype))
        found = self.call(
            self._ttnn.rand, "rand", (list(shape) or [1],), {"dtype": kind, "device": self._code_device()}
        )
        return Handle(found.raw, tuple(shape), dtype, found.name)

    def reshape(self, tensor: Handle, shape: Sequence[int]) -> Handle:
        """Another shape; one without dimensions has one of size 1 on the device."""
        if tensor.dtype == COMPLEX:
            return self.as_complex(self.reshape(self.as_real(tensor), [*shape, 2]))
        sizes = [int(size) for size in shape]
        if -1 in sizes:
            known, count = 1, 1
            for size in tensor.shape:
                count *= size
            for size in sizes:
                known *= size if size != -1 else 1
            sizes[sizes.index(-1)] = count // max(1, known)
        if tuple(sizes) == tensor.shape:
            return tensor
        found = self.call(self._ttnn.reshape, "reshape", (tensor, sizes or [1]), {})
        return Handle(found.raw, tuple(sizes), tensor.dtype, found.name)

    def full(self, shape: Sequence[int], value: Any, dtype: str) -> Handle:
        """A new tensor of one value."""
        wanted = self.device_dtype(dtype)
        kept = _Code(wanted[0], wanted[1])
        number = float(value) if wanted[1] == "ttnn.bfloat16" else int(value)
        arguments = (list(shape) or [1], number)
        found = self.call(
            self._ttnn.full, "full", arguments,
            {"dtype": kept, "layout": _Code(self._ttnn.TILE_LAYOUT, "ttnn.TILE_LAYOUT"), "device": self._code_device()},
        )  # fmt: skip
        return Handle(found.raw, tuple(shape), dtype, found.name)

    def full_like(self, tensor: Handle, value: float) -> Handle:
        """A new tensor of one value in the shape of another."""
        return self.full(tensor.shape, value, tensor.dtype)

    def arange(self, start: object, end: object, step: object, dtype: str) -> Handle:
        """Numbers in a row."""
        wanted = self.device_dtype(dtype)
        given = {"dtype": _Code(*wanted), "device": self._code_device()}
        found = self.as_tiles(self.call(self._ttnn.arange, "arange", (start, end, step), given))
        return Handle(found.raw, tuple(found.raw.shape), dtype, found.name)

    def conv_rows(self, rows: Handle, weight: Handle, bias: Handle | None, options: dict[str, object]) -> Any:
        """A convolution over rows of channels: the rows of the result, and its height and width."""
        return self._convolution("conv2d", rows, weight, bias, options)

    def conv_transpose_rows(self, rows: Handle, weight: Handle, bias: Handle | None, options: dict[str, object]) -> Any:
        """The transposed one."""
        return self._convolution("conv_transpose2d", rows, weight, bias, options)

    def on_host(self, tensor: Handle) -> Handle:
        """On the host, in rows."""
        if tensor.raw.storage_type() != self._ttnn.StorageType.DEVICE:
            return tensor
        found = self.call(self._ttnn.from_device, "from_device", (self.as_rows(tensor),), {})
        return Handle(found.raw, tensor.shape, tensor.dtype, found.name)

    # --- How calls are made ---

    def call(self, function: Any, name: str, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        """Call an op, keep the call, and wrap what it gives."""
        handles = [one for one in (*arguments, *named.values()) if isinstance(one, Handle)]
        if any(one.dtype == COMPLEX for one in handles):
            msg = "complex numbers other than in products and views"
            raise NotMappedError(msg)
        self.calls.append(f"ttnn.{name}")
        given, keywords = [_raw(one) for one in arguments], {key: _raw(value) for key, value in named.items()}
        if self._probe is not None:
            self._probe.measure(function, name, given, keywords)
        result = function(*given, **keywords)
        parts = [*map(_text, arguments), *(f"{key}={_text(value)}" for key, value in named.items())]
        dtype = "bool" if name.rpartition(".")[2] in COMPARISONS else ""
        if isinstance(result, list | tuple):
            wrapped: Any = [self._wrapped(one, dtype, handles) for one in result]
            shown = ", ".join(one.name for one in wrapped)
        else:
            wrapped = self._wrapped(result, dtype, handles)
            shown = wrapped.name
        self.lines.append(f"{shown} = ttnn.{name}({', '.join(parts)})")
        return wrapped

    def adopt(self, raw: object, shape: Sequence[int], dtype: str, name: str) -> Handle:
        """A tensor that was made elsewhere."""
        return Handle(raw, tuple(shape), dtype, name)

    def device_dtype(self, dtype: str) -> tuple[Any, str]:
        """What an element type of torch is on the device, and its name in code."""
        name = "int32" if dtype in _WHOLE else self.variant.float_dtype if dtype != "bool" else "bfloat16"
        return getattr(self._ttnn, name), f"ttnn.{name}"

    def _wrapped(self, raw: Any, dtype: str, sources: Sequence[Handle]) -> Handle:
        self._made += 1
        whole = "INT" in str(raw.dtype)
        known = dtype or ("int64" if whole else "bfloat16")
        if not dtype and sources and sources[0].dtype == "bool" and not whole:
            known = "bool"
        shape = tuple(raw.shape)
        if sources and all(one.shape == () for one in sources) and shape == (1,):
            shape = ()
        return Handle(raw, shape, known, f"t{self._made}")

    def _code_device(self) -> _Code:
        return _Code(self._device, "self.device")

    def _typecast(self, tensor: Handle, wanted: tuple[object, str]) -> Handle:
        found: Handle = self.call(self._ttnn.typecast, "typecast", (tensor, _Code(*wanted)), {})
        return found

    def _laid_out(self, tensor: Handle, layout: object, name: str) -> Handle:
        if tensor.raw.layout == layout:
            return tensor
        if tensor.raw.is_sharded():  # shards of rows need not be whole tiles
            memory = _Code(self._ttnn.DRAM_MEMORY_CONFIG, "ttnn.DRAM_MEMORY_CONFIG")
            tensor = self.call(self._ttnn.to_memory_config, "to_memory_config", (tensor, memory), {})
        found = self.call(self._ttnn.to_layout, "to_layout", (tensor, _Code(layout, name)), {})
        return Handle(found.raw, tensor.shape, tensor.dtype, found.name)

    def _convolution(
        self, name: str, rows: Handle, weight: Handle, bias: Handle | None, options: dict[str, object]
    ) -> tuple[Handle, list[int]]:
        ttnn = self._ttnn
        kernel = self.on_host(weight)
        given = {
            "input_tensor": rows, "weight_tensor": kernel, "device": self._code_device(),
            "in_channels": options["in_channels"], "out_channels": options["out_channels"],
            "batch_size": options["batch"], "input_height": options["height"], "input_width": options["width"],
            "kernel_size": options["kernel"], "stride": options["stride"], "padding": options["padding"],
            "dilation": options["dilation"], "groups": options["groups"],
        }  # fmt: skip
        if bias is not None:
            wide = self.as_rows(self.reshape(bias, [1, 1, 1, bias.shape[0]]))
            given["bias_tensor"] = self.call(ttnn.from_device, "from_device", (wide,), {})
        if "output_padding" in options:
            given["output_padding"] = options["output_padding"]
        found = self.call(getattr(ttnn, name), name, (), given)
        out = _conv_out(options, transposed="output_padding" in options)
        return found, out


def _conv_out(options: dict[str, Any], *, transposed: bool) -> list[int]:
    found = []
    for at, size in enumerate((options["height"], options["width"])):
        kernel, step, spread = options["kernel"][at], options["stride"][at], options["dilation"][at]
        pad = options["padding"][at]
        if transposed:
            found.append((size - 1) * step - 2 * pad + spread * (kernel - 1) + options["output_padding"][at] + 1)
        else:
            found.append((size + 2 * pad - spread * (kernel - 1) - 1) // step + 1)
    return found


@dataclass
class _Code:
    """A value with the text that stands for it in code."""

    raw: Any
    text: str


@dataclass
class _Namespace:
    """An op, or a module of ops."""

    facade: Facade
    found: Any
    name: str
    known: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return _Namespace(self.facade, getattr(self.found, name), f"{self.name}.{name}")

    def __call__(self, *arguments: object, **named: object) -> Any:
        return self.facade.call(self.found, self.name, arguments, named)


def _raw(value: object) -> Any:
    if isinstance(value, Handle | _Code):
        return value.raw
    return [_raw(one) for one in value] if isinstance(value, list) else value


def _text(value: object) -> str:
    if isinstance(value, Handle):
        return value.name
    if isinstance(value, _Code):
        return value.text
    if isinstance(value, float) and value - value != 0:
        return f'float("{value}")'
    return "[" + ", ".join(map(_text, value)) + "]" if isinstance(value, list) else repr(value)

"""Weights that a tensor subclass packs: the bytes are those that are stored, and the parameters stay what they are."""

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.record.cost import Conventions, Formats
from torchstone.workflows.cost import PricingOptions, price_trace

_FLOAT = 4


class Int8Weight(Tensor):
    """Rows of int8 values with one float32 scale each, as weight-only quantization stores them."""

    __slots__: ClassVar[list[str]] = ["quantized", "scales"]

    quantized: Tensor
    scales: Tensor

    @staticmethod
    def __new__(cls: type["Int8Weight"], values: Tensor, scales: Tensor) -> "Int8Weight":
        return Tensor._make_wrapper_subclass(cls, values.shape, dtype=torch.float32, device=values.device)

    def __init__(self, values: Tensor, scales: Tensor) -> None:
        self.quantized, self.scales = values, scales

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["quantized", "scales"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], _context: None, _size: Any, _stride: Any) -> "Int8Weight":
        return Int8Weight(inner["quantized"], inner["scales"])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear:
            x, weight, *bias = args
            wide = weight.quantized.to(torch.float32) * weight.scales[:, None]
            return nn.functional.linear(x, wide, *bias, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return Int8Weight(args[0].quantized, args[0].scales)
        msg = f"{func} is not used here"
        raise NotImplementedError(msg)


def _quantized(width: int, out: int) -> nn.Module:
    model = nn.Linear(width, out)
    weight = Int8Weight(torch.zeros(out, width, dtype=torch.int8), torch.ones(out))
    model.weight = nn.Parameter(weight, requires_grad=False)
    return nn.Sequential(model)


@pytest.mark.parametrize("mode", ["fake", "cpu"])
@pytest.mark.parametrize(("width", "out"), [(1, 1), (33, 7), (256, 512)])
def test_packed_weights_take_what_they_store(mode: str, width: int, out: int) -> None:
    model = _quantized(width, out)
    trace = capture(model, (torch.zeros(2, width),), mode)
    assert trace.failure is None
    stored = width * out + out * _FLOAT
    table = price(trace)
    assert table.totals.parameter_bytes == stored + out * _FLOAT  # the bias, too
    assert table.peak.weights_bytes == stored + out * _FLOAT
    assert trace.eager_memory is not None
    assert trace.eager_memory.before_bytes == stored + out * _FLOAT + 2 * width * _FLOAT
    assert table.conventions.dtypes == ("float32", "float32 in Int8Weight")


@pytest.mark.parametrize("mode", ["fake", "cpu"])
def test_a_subclass_of_two_tensors_takes_both(mode: str) -> None:
    model = nn.Linear(8, 4, bias=False)
    model.weight = nn.Parameter(TwoTensor(torch.zeros(4, 8), torch.zeros(4, 8)))
    trace = capture(model, (torch.zeros(2, 8),), mode)
    assert trace.failure is None
    assert price(trace).totals.parameter_bytes == 2 * 4 * 8 * _FLOAT
    assert price(trace).peak.weights_bytes == 2 * 4 * 8 * _FLOAT


class Packed(Tensor):
    """Two 4-bit values in each byte, and one scale for a row, unpacked at the level of kernels."""

    __slots__: ClassVar[list[str]] = ["packed", "scales"]

    packed: Tensor
    scales: Tensor

    @staticmethod
    def __new__(cls: type["Packed"], packed: Tensor, scales: Tensor) -> "Packed":
        rows, half = packed.shape
        return Tensor._make_wrapper_subclass(cls, (rows, 2 * half), dtype=torch.float32, device=packed.device)

    def __init__(self, packed: Tensor, scales: Tensor) -> None:
        self.packed, self.scales = packed, scales

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["packed", "scales"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], _context: None, _size: Any, _stride: Any) -> "Packed":
        return Packed(inner["packed"], inner["scales"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func is torch.ops.aten.detach.default:
            return Packed(func(args[0].packed), func(args[0].scales))
        plain = [one.unpack() if isinstance(one, Packed) else one for one in args]
        return func(*plain, **(kwargs or {}))

    def unpack(self) -> Tensor:
        halves = torch.stack([self.packed & 15, self.packed >> 4], -1).reshape(self.shape)
        return halves.to(torch.float32) * self.scales[:, None]


@pytest.mark.parametrize("mode", ["fake", "cpu"])
def test_what_a_packed_weight_computes_at_the_level_of_kernels_is_counted(mode: str) -> None:
    rows, width, batch = 32, 64, 8
    model = nn.Linear(width, rows, bias=False)
    weight = Packed(torch.zeros(rows, width // 2, dtype=torch.uint8), torch.ones(rows))
    model.weight = nn.Parameter(weight, requires_grad=False)
    trace = capture(nn.Sequential(model, nn.ReLU()), (torch.zeros(batch, width),), mode)
    assert trace.failure is None
    ops = [call.signature.op for call in trace.ops]
    assert ops.index("aten.bitwise_and.Scalar") < ops.index("aten.mul.Tensor") < ops.index("aten.mm.default")
    table = price(trace)
    assert table.totals.matmul_flops == 2 * batch * rows * width
    assert table.totals.parameter_bytes == rows * width // 2 + rows * _FLOAT
    # While the rows are scaled, the whole numbers and the result exist beside the weight and the input.
    assert table.peak.total_bytes >= table.totals.parameter_bytes + (batch + 2 * rows) * width * _FLOAT
    assert trace.eager_memory is not None
    assert trace.eager_memory.before_bytes == table.totals.parameter_bytes + batch * width * _FLOAT


class Pair(Tensor):
    """Two tensors that every op is run on, one after the other."""

    __slots__: ClassVar[list[str]] = ["first", "second"]

    first: Tensor
    second: Tensor

    @staticmethod
    def __new__(cls: type["Pair"], first: Tensor, second: Tensor) -> "Pair":
        return Tensor._make_wrapper_subclass(cls, first.shape, dtype=first.dtype, device=first.device)

    def __init__(self, first: Tensor, second: Tensor) -> None:
        self.first, self.second = first, second

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["first", "second"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], _context: None, _size: Any, _stride: Any) -> "Pair":
        return Pair(inner["first"], inner["second"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        first = func(*[one.first if isinstance(one, Pair) else one for one in args], **(kwargs or {}))
        second = func(*[one.second if isinstance(one, Pair) else one for one in args], **(kwargs or {}))
        return Pair(first, second)


class _Both(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(16, 16, bias=False) for _ in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        pair = self.layers(Pair(x, 2 * x))
        return torch.add(pair.first, pair.second)


@pytest.mark.parametrize("mode", ["fake", "cpu"])
def test_results_that_are_pairs_of_tensors_take_the_memory_of_their_parts_once(mode: str) -> None:
    batch, layers = 4, 3
    trace = capture(_Both(layers), (torch.zeros(batch, 16),), mode)
    assert trace.failure is None
    table = price(trace)
    assert table.totals.matmul_flops == 2 * layers * 2 * batch * 16 * 16
    result = batch * 16 * _FLOAT
    assert table.peak.total_bytes - table.totals.parameter_bytes <= 7 * result  # two of two layers, the input


def test_a_format_that_packed_weights_do_not_take_is_said_so() -> None:
    trace = capture(nn.Sequential(_quantized(64, 32), nn.Linear(32, 32, bias=False)), torch.ones(2, 64))
    packed = 64 * 32 + 32 * _FLOAT
    table = price_trace(trace, PricingOptions(conventions=Conventions(formats=Formats(weights="int4_g128"))))
    assert table.totals.parameter_bytes == packed + 32 * _FLOAT + 32 * 32 // 2 + 32 * 2  # bias, values, scales
    assert table.notes == ("weights int4_g128: 1 packed weight stays as stored (Int8Weight)",)
    assert price_trace(trace).notes == ()

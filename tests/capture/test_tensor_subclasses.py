"""Weights that a tensor subclass packs: the bytes are those that are stored, and the parameters stay what they are."""

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

from torchstone.capture import capture
from torchstone.cost import price

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

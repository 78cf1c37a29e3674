"""Builders: op signatures by hand, and the costs of a few lines of torch."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.price_trace import price_signature
from torchstone.cost.registry import Price
from torchstone.record.cost import CostTable
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace
from torchstone.record.value import Argument, Items, Value


def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
    """A contiguous tensor."""
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= size
    return TensorSpec(shape=shape, dtype=dtype, stride=tuple(reversed(stride)))


def several(*values: Value) -> Items:
    return Items(kind="list", items=values)


def signature(op: str, result: Value, **arguments: Value) -> OpSignature:
    given = tuple(Argument(name=name.removesuffix("_"), value=value) for name, value in arguments.items())
    return OpSignature(op=op, arguments=given, output=result)


def priced(op: str, result: Value, **arguments: Value) -> Price:
    """The price with its traffic filled in; fails where there is none."""
    found, traffic = price_signature(signature(op, result, **arguments))
    assert not isinstance(traffic, str), traffic
    return Price(
        flops=found.flops,
        matmul_flops=found.matmul_flops,
        causal_flops=found.causal_flops,
        reads=traffic.reads,
        writes=traffic.writes,
    )


class Lines(nn.Module):
    """A few lines of torch as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self._function(*tensors)


def trace_of(function: Callable[..., Any], *tensors: Tensor, mode: str = "cpu", backward: bool = False) -> Trace:
    trace = capture(Lines(function), tensors, mode=mode, backward=backward)
    assert trace.failure is None, trace.failure
    return trace


def cost_of(function: Callable[..., Any], *tensors: Tensor, mode: str = "cpu", backward: bool = False) -> CostTable:
    """What a few lines of torch cost; every op must have a price."""
    table = price(trace_of(function, *tensors, mode=mode, backward=backward))
    assert table.unpriced == {}
    return table


def counted_by_torch(function: Callable[..., Any], *tensors: Tensor) -> int:
    """Matmul FLOPs by torch's own counter."""
    with FlopCounterMode(display=False) as counter:
        function(*tensors)
    return int(counter.get_total_flops())


def flops_of(function: Callable[..., Any], *tensors: Tensor) -> int:
    return cost_of(function, *tensors).totals.flops


def meta(*shapes: Sequence[int]) -> list[Tensor]:
    return [torch.empty(*shape, device="meta") for shape in shapes]

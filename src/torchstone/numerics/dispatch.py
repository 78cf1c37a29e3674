"""Every op that reaches a kernel, seen from Python. One rule for whoever counts ops or computes them another way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any, TypeAlias

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

KernelOp: TypeAlias = OpOverload | HigherOrderOperator
OpArguments: TypeAlias = tuple[Any, ...]  # what an op takes by position: tensors, numbers, lists of them
OpKeywords: TypeAlias = dict[str, Any]

_DEVICE_QUERY = torch.ops.prim.device.default  # asks a fake tensor for its device; computes nothing


def op_name(op: object) -> str:
    """The name of an op overload, `aten.add.Tensor`, or of a higher-order op, which has no overloads."""
    return f"higher_order.{op.name()}" if isinstance(op, HigherOrderOperator) else str(op)


_composite: dict[int, tuple[KernelOp, bool]] = {}  # by id: to hash an op runs Python code


def is_composite(op: KernelOp) -> bool:
    """Whether an op consists of other ops, which torch calls in its place unless inference mode hides that."""
    known = _composite.get(id(op))
    if known is None:
        known = _composite[id(op)] = (op, _consists_of_others(op))
    return known[1]


def _consists_of_others(op: KernelOp) -> bool:
    """An op that has a kernel of its own, too, runs as one: `silu_backward`."""
    if isinstance(op, HigherOrderOperator) or not op._can_decompose():
        return False
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(op.name(), "CompositeImplicitAutograd") and not has_kernel(op.name(), "CPU")


@cache
def computes_itself(kind: type) -> bool:
    """Whether a tensor class is made of other tensors and replaces an op on it by its own ops on those.

    Packed weights of a quantization library do. Classes of torch itself, such as nested tensors, are seen as a whole.
    """
    return hasattr(kind, "__tensor_flatten__") and not kind.__module__.startswith("torch.")


class KernelOpMode(TorchDispatchMode, ABC):
    """Passes every op that reaches a kernel to `run_op`.

    A composite op is replaced by the ops it consists of, and an op on packed tensors by the ops that their class runs.
    """

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: KernelOp, types: Any, args: OpArguments = (), kwargs: OpKeywords | None = None
    ) -> object:
        """Receive a call from torch, which sees to it that nothing in here is compiled."""
        return self.receive(func, types, args, kwargs)

    def receive(self, func: KernelOp, types: Any, args: OpArguments = (), kwargs: OpKeywords | None = None) -> object:
        """Receive a call from torch; a mode that is only open while nothing is compiled may do so directly."""
        if func is _DEVICE_QUERY:
            return args[0].device
        if types and any(map(computes_itself, types)):
            return NotImplemented  # torch then asks the class of the tensor, with this mode open
        kwargs = kwargs or {}
        if isinstance(func, OpOverload) and is_composite(func):
            with self:  # torch leaves the mode while it runs: enter it again, to see the parts
                return func.decompose(*args, **kwargs)
        return self.run_op(func, args, kwargs)

    @abstractmethod
    def run_op(self, func: KernelOp, args: OpArguments, kwargs: OpKeywords) -> object:
        """Run one op and return its result; called outside of this mode."""

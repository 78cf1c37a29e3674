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


@cache
def is_composite(op: KernelOp) -> bool:
    """Whether an op consists of other ops, which torch calls in its place unless inference mode hides that."""
    return (
        not isinstance(op, HigherOrderOperator)
        and op._can_decompose()
        and torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    )


class KernelOpMode(TorchDispatchMode, ABC):
    """Passes every op that reaches a kernel to `run_op`; a composite op is replaced by the ops it consists of."""

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: KernelOp, types: object, args: OpArguments = (), kwargs: OpKeywords | None = None
    ) -> object:
        """Receive a call from torch, which sees to it that nothing in here is compiled."""
        return self.receive(func, types, args, kwargs)

    def receive(
        self, func: KernelOp, types: object, args: OpArguments = (), kwargs: OpKeywords | None = None
    ) -> object:
        """Receive a call from torch; a mode that is only open while nothing is compiled may do so directly."""
        del types
        kwargs = kwargs or {}
        if func is _DEVICE_QUERY:
            return args[0].device
        if isinstance(func, OpOverload) and is_composite(func):
            with self:  # torch leaves the mode while it runs: enter it again, to see the parts
                return func.decompose(*args, **kwargs)
        return self.run_op(func, args, kwargs)

    @abstractmethod
    def run_op(self, func: KernelOp, args: OpArguments, kwargs: OpKeywords) -> object:
        """Run one op and return its result; called outside of this mode."""

"""Observe a running model: every op that reaches a kernel, and every call of a module. One rule for all who count.

A capture numbers op calls and module calls; a check records values under those numbers in a later run. Both must see
the same calls in the same order, so both take the rule from here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from functools import cache
from threading import get_ident
from typing import Any

import torch
from torch import nn
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

from torchstone.backends.protocol import Args, Kwargs

CallModule = Callable[[nn.Module, Args, Kwargs], object]

_DEVICE_QUERY = torch.ops.prim.device.default  # asks a fake tensor for its device; computes nothing


def op_name(op: Any) -> str:
    """The name of an op overload, `aten.add.Tensor`, or of a higher-order op, which has no overloads."""
    return f"higher_order.{op.name()}" if isinstance(op, HigherOrderOperator) else str(op)


@cache
def is_composite(op: Any) -> bool:
    """Whether an op consists of other ops, which torch calls in its place unless inference mode hides that."""
    return (
        not isinstance(op, HigherOrderOperator)
        and op._can_decompose()
        and torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    )


class KernelOpMode(TorchDispatchMode, ABC):
    """Passes every op that reaches a kernel to `run_op`; a composite op is replaced by the ops it consists of."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Receive a call from torch."""
        kwargs = kwargs or {}
        if func is _DEVICE_QUERY:
            return func(*args, **kwargs)
        if is_composite(func):
            with self:  # torch leaves the mode while it runs: enter it again, to see the parts
                return func.decompose(*args, **kwargs)
        return self.run_op(func, args, kwargs)

    @abstractmethod
    def run_op(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run one op and return its result; called outside of this mode."""


@contextmanager
def intercepted(known: Container[int] | None, call: CallModule) -> Iterator[CallModule]:
    """Pass calls of modules through `call` while open; yields the function that really calls a module.

    `known` has the ids of the modules to intercept, on this thread only; None stands for every module on every thread.
    """
    original = nn.Module.__call__
    thread = get_ident()

    def call_module(module: nn.Module, *args: object, **kwargs: object) -> object:
        if known is not None and (id(module) not in known or get_ident() != thread):
            return original(module, *args, **kwargs)
        return call(module, args, kwargs)

    def really_call(module: nn.Module, args: Args, kwargs: Kwargs) -> Any:
        return original(module, *args, **kwargs)

    nn.Module.__call__ = call_module  # type: ignore[method-assign]
    try:
        yield really_call
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]

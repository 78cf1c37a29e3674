"""Observe a running model: every op that reaches a kernel, and every call of a module. One rule for all who count.

A capture numbers op calls and module calls; a check records values under those numbers in a later run. Both must see
the same calls in the same order, so both take the rule from here.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from threading import get_ident

from torch import nn

from torchstone.backends.protocol import Args, Kwargs
from torchstone.numerics.dispatch import KernelOp, KernelOpMode, OpArguments, OpKeywords, is_composite, op_name

__all__ = [
    "CallModule", "KernelOp", "KernelOpMode", "OpArguments", "OpKeywords", "intercepted", "is_composite", "op_name",
]  # fmt: skip

CallModule = Callable[[nn.Module, Args, Kwargs], object]


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

    def really_call(module: nn.Module, args: Args, kwargs: Kwargs) -> object:
        return original(module, *args, **kwargs)

    nn.Module.__call__ = call_module  # type: ignore[method-assign]
    try:
        yield really_call
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]

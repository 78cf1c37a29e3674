"""Observe a running model: every op that reaches a kernel, and every call of a module. One rule for all who count.

A capture numbers op calls and module calls; a check records values under those numbers in a later run. Both must see
the same calls in the same order, so both take the rule from here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from threading import get_ident

from torch import nn

from torchstone.backends.protocol import Args, Kwargs
from torchstone.numerics.dispatch import KernelOp, KernelOpMode, OpArguments, OpKeywords, is_composite, op_name

__all__ = [
    "CallModule", "KernelOp", "KernelOpMode", "OpArguments", "OpKeywords", "intercepted", "is_composite", "op_name",
]  # fmt: skip

CallModule = Callable[[nn.Module, Args, Kwargs], object]
_NoteModule = Callable[[nn.Module], object]
_CALL_IN_PLACE = "_compiled_call_impl"  # an attribute of modules that torch calls instead of their code


@contextmanager
def intercepted(
    modules: Collection[nn.Module] | None, call: CallModule, elsewhere: _NoteModule = lambda _module: None
) -> Iterator[CallModule]:
    """Pass calls of modules through `call` while open; yields the function that really calls a module.

    Of the given modules, calls on this thread are intercepted, and `elsewhere` gets those on others; None stands
    for every module on every thread.
    """
    if modules is not None:
        with _known_intercepted(modules, call, elsewhere) as really_call_known:
            yield really_call_known
        return
    original = nn.Module.__call__

    def call_module(module: nn.Module, *args: object, **kwargs: object) -> object:
        return call(module, args, kwargs)

    def really_call(module: nn.Module, args: Args, kwargs: Kwargs) -> object:
        return original(module, *args, **kwargs)

    nn.Module.__call__ = call_module  # type: ignore[method-assign]
    try:
        yield really_call
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]


@contextmanager
def _known_intercepted(
    modules: Collection[nn.Module], call: CallModule, elsewhere: _NoteModule
) -> Iterator[CallModule]:
    """Give each module an implementation of its call, where torch keeps a compiled one.

    To assign `nn.Module.__call__` takes milliseconds where a thousand classes inherit it.
    """
    thread = get_ident()
    tables = [module.__dict__ for module in modules]
    before = [(own, own.get(_CALL_IN_PLACE)) for own in tables]
    compiled = {id(attributes): own for attributes, own in before if own is not None}

    def call_module(module: nn.Module, *args: object, **kwargs: object) -> object:
        if get_ident() == thread:
            return call(module, args, kwargs)
        elsewhere(module)
        return really_call(module, args, kwargs)

    def really_call(module: nn.Module, args: Args, kwargs: Kwargs) -> object:
        own = compiled.get(id(vars(module))) if compiled else None
        return module._call_impl(*args, **kwargs) if own is None else own(*args, **kwargs)

    try:
        for module in modules:
            module.__dict__[_CALL_IN_PLACE] = partial(call_module, module)
        yield really_call
    finally:
        for attributes, own in before:
            if own is None:
                attributes.pop(_CALL_IN_PLACE, None)
            else:
                attributes[_CALL_IN_PLACE] = own

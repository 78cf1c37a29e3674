"""Whatever a forward pass changes in a model, its inputs or the process, it is put back."""

import copy
import logging
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import is_
from typing import Any

import torch
from torch import nn

from torchstone.capture.describe import Describer
from torchstone.capture.worlds import RealWorld, StandInWorld


@contextmanager
def process_kept(*, grad: bool) -> Iterator[None]:
    """Run without compiling and with the asked grad mode; random states come back."""
    python_state = random.getstate()
    chatty = logging.getLogger("torch._subclasses.fake_tensor")  # prints a traceback of errors that we report ourselves
    level = chatty.level
    chatty.setLevel(logging.CRITICAL)
    try:
        with ExitStack() as modes:
            modes.enter_context(torch.random.fork_rng(devices=[]))
            modes.enter_context(torch.compiler.set_stance("force_eager"))
            modes.enter_context(torch.set_grad_enabled(grad))
            yield
    finally:
        chatty.setLevel(level)
        random.setstate(python_state)


@contextmanager
def model_kept(model: nn.Module, *, real: bool) -> Iterator[None]:
    """Attributes, hooks, buffers and gradients of every module are as before when this closes."""
    before = [_Kept(vars(module)) for module in model.modules()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    values = [(buffer, buffer._version, buffer.detach().clone()) for buffer in model.buffers()] if real else []
    try:
        yield
    finally:
        for kept in before:
            kept.restore()
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for buffer, version, value in values:
            if buffer._version != version:
                with torch.no_grad():
                    buffer.copy_(value)


class _Kept:
    """The attributes of an object and what stands in those of them that are dictionaries, hooks among them."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        self._all = [(held, dict(held)) for held in (attributes, *attributes.values()) if isinstance(held, dict)]

    def restore(self) -> None:
        for held, before in self._all:
            if len(held) != len(before) or not all(map(is_, held.values(), before.values())):
                held.clear()
                held.update(before)


def inputs_in(
    world: RealWorld | StandInWorld, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs as the world takes them, in objects of their own."""
    describer = Describer()
    describer.describe((args, kwargs))
    memo: dict[int, Any] = {}
    for tensor in describer.tensors:
        if id(tensor) not in memo:
            memo[id(tensor)] = world.enter(tensor)
    new_args, new_kwargs = copy.deepcopy((args, kwargs), memo)
    return new_args, new_kwargs

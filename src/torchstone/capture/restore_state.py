"""Whatever a forward pass changes in a model, its inputs or the process, it is put back."""

import copy
import gc
import logging
import random
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import is_
from threading import Lock
from typing import Any

import torch
from torch import nn

from torchstone.capture.describe import Describer
from torchstone.capture.tensor_modes import RealWorld, StandInWorld

_MOST_UNSEEN = 2_000_000  # objects that captures recorded since the last look for garbage among all objects
_unseen = 0


@contextmanager
def uncollected() -> Iterator[None]:
    """What a capture records lives until it is over: looking for garbage meanwhile takes time and finds none.

    A capture leaves no garbage of its own either. So what it recorded counts as old from the start: as young objects,
    a hundred thousand at a time, they would make Python look through everything that the process has, torch included,
    after every few captures. Garbage of others that is among them is found later, when enough captures have been made.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            _make_old()
            gc.enable()


def _make_old() -> None:
    """Let young objects count as old without looking at them, or look at all objects once they are many."""
    global _unseen  # noqa: PLW0603 - the collector is one for the process, too
    _unseen += gc.get_count()[0]
    if gc.get_freeze_count():  # somebody else keeps objects from being looked at
        return
    if _unseen > _MOST_UNSEEN:
        gc.collect()
        _unseen = 0
        return
    gc.freeze()
    gc.unfreeze()


_single = 0  # captures on one thread that are open
_threads = 0  # that torch had before the first of them
_single_lock = Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on this thread alone: threads that torch wakes for a small tensor spin longer than the work takes.

    The number is one for the process, so of several captures at a time the last one gives it back.
    """
    global _single, _threads  # noqa: PLW0603 - as torch's own number
    with _single_lock:
        if not _single:
            _threads = torch.get_num_threads()
        _single += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _single_lock:
            _single -= 1
            if not _single:
                torch.set_num_threads(_threads)


@contextmanager
def process_kept(*, grad: bool) -> Iterator[None]:
    """Run without compiling and with the asked grad mode; random states come back."""
    python_state = random.getstate()
    chatty = logging.getLogger("torch._subclasses.fake_tensor")  # prints a traceback of errors that we report ourselves
    disabled = chatty.disabled
    chatty.disabled = True  # a new level would clear what every logger of the process knows about levels
    try:
        with ExitStack() as modes:
            modes.enter_context(torch.random.fork_rng(devices=[]))
            modes.enter_context(torch.compiler.set_stance("force_eager"))
            modes.enter_context(torch.set_grad_enabled(grad))
            modes.enter_context(_conversions_without_effect())
            yield
    finally:
        chatty.disabled = disabled
        random.setstate(python_state)


@contextmanager
def _conversions_without_effect() -> Iterator[None]:
    """Let `module.to(dtype)` do nothing where the module has that dtype, as on real parameters.

    For fake parameters torch exchanges the tensor objects all the same, and refuses that for one that is in use.
    """
    convert = nn.Module.to

    def to(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        wanted: tuple[Any, ...] = torch._C._nn._parse_to(*args, **kwargs)
        device, dtype, _, memory_format = wanted
        held = [*module.parameters(), *module.buffers()]
        stays = memory_format is None and all(
            device in (None, one.device) and (dtype in (None, one.dtype) or not one.is_floating_point()) for one in held
        )
        return module if stays else convert(module, *args, **kwargs)

    nn.Module.to = to  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.to = convert  # type: ignore[method-assign]


@contextmanager
def modules_kept(modules: list[nn.Module], *, real: bool) -> Iterator[None]:
    """Attributes, hooks, buffers and gradients of the modules are as before when this closes."""
    before = _Kept(modules)
    gradients = [
        (parameter, parameter.grad)
        for module in (modules if real else ())  # stand-ins have gradients of their own
        for parameter in module._parameters.values()
        if parameter is not None
    ]
    buffers = (
        [buffer for module in modules for buffer in module._buffers.values() if buffer is not None] if real else []
    )
    values = [(buffer, buffer._version, buffer.detach().clone()) for buffer in buffers]
    try:
        yield
    finally:
        before.restore()
        for parameter, gradient in gradients:
            if parameter.grad is not gradient:
                parameter.grad = gradient
        for buffer, version, value in values:
            # Batch norm updates its statistics without raising their version; sparse tensors cannot be compared.
            same = torch.equal(buffer, value) if buffer.layout is torch.strided else buffer._version == version
            if not same:
                with torch.no_grad():
                    buffer.copy_(value)


_DICTIONARIES = frozenset({dict, OrderedDict})


class _Kept:
    """The attributes of modules and what stands in those of them that are dictionaries, hooks among them."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self._filled: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._empty: list[dict[str, Any]] = []
        for module in modules:
            attributes = vars(module)
            self._filled.append((attributes, attributes.copy()))
            for value in attributes.values():
                if type(value) in _DICTIONARIES:
                    if value:
                        self._filled.append((value, value.copy()))
                    else:
                        self._empty.append(value)

    def restore(self) -> None:
        for dictionary in filter(None, self._empty):
            dictionary.clear()
        for dictionary, before in self._filled:
            if len(dictionary) != len(before) or not all(map(is_, dictionary.values(), before.values())):
                dictionary.clear()
                dictionary.update(before)


def inputs_in(
    world: RealWorld | StandInWorld, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs as the world takes them, in objects of their own."""
    describer = Describer()
    describer.describe((args, kwargs))
    memo: dict[int, object] = {}
    for tensor in describer.tensors:
        if id(tensor) not in memo:
            memo[id(tensor)] = world.enter(tensor)
    new_args, new_kwargs = copy.deepcopy((args, kwargs), memo)
    return new_args, new_kwargs

"""Whatever a forward pass changes in a model, its inputs or the process, it is put back."""

import copy
import gc
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from operator import is_
from threading import Lock
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, UntypedStorage, nn
from torch.utils._python_dispatch import _disable_current_modes

from torchstone.capture.describe import Describer
from torchstone.capture.tables import renew, storage_pointer
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


# Changes of the whole process that hold while any capture runs: captures may run on several threads at a time.


class WhileAny:
    """A context manager for a change of the process: the first that enters makes it, the last that leaves undoes it.

    If each one put back what it had found, one that began second and ended last would leave the change of the first.
    """

    def __init__(self, make: Callable[[], Callable[[], object]]) -> None:
        """`make` makes the change and gives what undoes it."""
        self._make = make
        self._undo: Callable[[], object] | None = None
        self._open = 0
        self._lock = Lock()

    def __enter__(self) -> None:
        with self._lock:
            if self._undo is None:
                self._undo = self._make()
            self._open += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._open -= 1
            if not self._open and self._undo is not None:
                undo, self._undo = self._undo, None
                undo()


_DATA: Any = Tensor.data
_single = 0  # captures on one thread that are open
_threads = 0  # that torch had for the first of them
_single_lock = Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on this thread alone: threads that torch wakes for a small tensor spin longer than the work takes.

    torch keeps one number for each thread of Python, and a thread that has none yet takes the one that was set last,
    by whatever thread. So each capture gives back the number of its own thread, and one on a new thread, which began
    with the 1 of another capture, gives back what that one had found.
    """
    global _single, _threads  # noqa: PLW0603 - as torch's own number
    with _single_lock:
        own = torch.get_num_threads()
        if not _single:
            _threads = own
        elif own == 1:
            own = _threads
        _single += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _single_lock:
            _single -= 1
            torch.set_num_threads(own)


def _no_errors_logged() -> Callable[[], object]:
    chatty = logging.getLogger("torch._subclasses.fake_tensor")  # prints a traceback of errors that we report ourselves
    disabled = chatty.disabled
    chatty.disabled = True  # a new level would clear what every logger of the process knows about levels
    return lambda: setattr(chatty, "disabled", disabled)


def _nothing_compiled() -> Callable[[], object]:
    stance = ExitStack()
    stance.enter_context(torch.compiler.set_stance("force_eager"))
    return stance.close


def _conversions_without_effect() -> Callable[[], object]:
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
    return lambda: setattr(nn.Module, "to", convert)


NO_ERRORS_LOGGED = WhileAny(_no_errors_logged)
NOTHING_COMPILED = WhileAny(_nothing_compiled)
# `module.to(dtype)` does nothing where the module has that dtype, as on real parameters. For fake parameters torch
# exchanges the tensor objects all the same, and refuses that for one that is in use.
CONVERSIONS_WITHOUT_EFFECT = WhileAny(_conversions_without_effect)


def _data_of(tensor: Tensor) -> Tensor:
    return _DATA.__get__(tensor)


def _assign_data(tensor: Tensor, data: Tensor) -> None:
    _DATA.__set__(tensor, data)
    renew(tensor)


def _watch_looks() -> Callable[[], object]:
    Tensor.data = property(_data_of, _assign_data)  # type: ignore[assignment]
    return lambda: delattr(Tensor, "data")


# A tensor whose `data` are assigned is another one with other looks: torch tells no mode.
LOOKS_WATCHED = WhileAny(_watch_looks)


@contextmanager
def process_kept(*, grad: bool) -> Iterator[None]:
    """Run without compiling and with the asked grad mode; random states come back."""
    python_state = random.getstate()
    try:
        with ExitStack() as modes:
            modes.enter_context(NO_ERRORS_LOGGED)
            modes.enter_context(torch.random.fork_rng(devices=[]))
            modes.enter_context(NOTHING_COMPILED)
            modes.enter_context(torch.set_grad_enabled(grad))
            modes.enter_context(CONVERSIONS_WITHOUT_EFFECT)
            yield
    finally:
        random.setstate(python_state)


@contextmanager
def modules_kept(modules: list[nn.Module], *, real: bool) -> "Iterator[KeptModules]":
    """Attributes, hooks, buffers and gradients of the modules are as before when this closes.

    Meanwhile no parameter has a gradient, as stand-ins have none: that of an earlier step would be added to.
    """
    before = KeptModules(modules)
    gradients = {
        parameter: parameter.grad
        for module in (modules if real else ())  # stand-ins have gradients of their own
        for parameter in module._parameters.values()
        if parameter is not None
    }
    buffers = (
        [buffer for module in modules for buffer in module._buffers.values() if buffer is not None] if real else []
    )
    values = [(buffer, buffer._version, buffer.detach().clone()) for buffer in buffers]
    try:
        for parameter in gradients:
            parameter.grad = None
        yield before
    finally:
        before.restore()
        for parameter, gradient in gradients.items():
            if parameter.grad is not gradient:
                parameter.grad = gradient
        for buffer, version, value in values:
            _restore_values(buffer, version, value)


def _restore_values(buffer: Tensor, version: int, value: Tensor) -> None:
    # Batch norm updates its statistics without raising their version; sparse tensors cannot be compared.
    if buffer.layout is torch.strided and (buffer.shape, buffer.dtype) != (value.shape, value.dtype):
        buffer.data = value  # it was resized, or given other data
    elif not (torch.equal(buffer, value) if buffer.layout is torch.strided else buffer._version == version):
        with torch.no_grad():
            buffer.copy_(value)


_DICTIONARIES = frozenset({dict, OrderedDict})


class KeptModules:
    """The attributes of modules and what stands in those of them that are dictionaries, hooks among them, or lists."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self._filled: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._empty: list[Any] = []  # dictionaries and lists
        self._lists: list[tuple[list[Any], list[Any]]] = []
        self._attributes: list[tuple[dict[str, Any], dict[str, Any]]] = []  # of each module
        self._held: set[int | None] | None = None  # the memory of their tensors; None: nothing was written yet
        self._written: dict[int, tuple[UntypedStorage, UntypedStorage]] = {}  # memory and what it was before
        for module in modules:
            attributes = vars(module)
            self._attributes.append((attributes, attributes.copy()))
            self._filled.append(self._attributes[-1])
            for value in attributes.values():
                if type(value) in _DICTIONARIES:
                    if value:
                        self._filled.append((value, value.copy()))
                    else:
                        self._empty.append(value)
                elif type(value) is list:
                    if value:
                        self._lists.append((value, value.copy()))
                    else:
                        self._empty.append(value)

    def before_write(self, tensor: Tensor) -> None:
        """Remember the values of memory that the modules held before the run, and that an op is about to write to."""
        if self._held is None:
            parts = chain(*(before.values() for _, before in self._filled), *(before for _, before in self._lists))
            self._held = {storage_pointer(one) for one in parts if isinstance(one, Tensor)}
        pointer = storage_pointer(tensor)
        if pointer is not None and pointer in self._held and pointer not in self._written:
            with _disable_current_modes():
                memory = tensor.untyped_storage()
                self._written[pointer] = (memory, memory.clone())

    def new_tensors(self) -> Iterator[tuple[int, str, Tensor]]:
        """The place of a module, the name and the tensor of each attribute and buffer that is another one by now."""
        no_tensors: set[type] = set()
        for place, (now, before) in enumerate(self._attributes):
            kinds = {*map(type, now.values())}
            if not kinds <= no_tensors:
                no_tensors |= {kind for kind in kinds if not issubclass(kind, Tensor)}
                held: list[tuple[str, Tensor | None]] = [one for one in now.items() if issubclass(type(one[1]), Tensor)]
            else:
                held = []
            if now["_buffers"]:
                held += dict.items(now["_buffers"])  # as modules hold them, not as they are looked at
            for name, value in held:
                if value is not None and value is not before.get(name, before["_buffers"].get(name)):
                    yield place, name, value

    def restore(self) -> None:
        """Put back what was there."""
        for container in filter(None, self._empty):
            container.clear()
        for container, parts in self._lists:
            if len(container) != len(parts) or not all(map(is_, container, parts)):
                container[:] = parts
        for dictionary, before in self._filled:
            if len(dictionary) != len(before) or not all(map(is_, dictionary.values(), before.values())):
                dictionary.clear()
                dictionary.update(before)
        for memory, values in self._written.values():
            if memory.nbytes() == values.nbytes():  # else it was resized, and its tensors have other data
                memory.copy_(values)


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

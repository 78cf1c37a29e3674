"""Whatever a forward pass changes in a model, its inputs or the process, it is put back."""

import copy
import gc
import logging
import random
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import filterfalse
from operator import is_
from threading import Lock
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from torchstone.capture.describe import Describer
from torchstone.capture.layouts import inner_containers, layout_of
from torchstone.capture.module_tree import ModuleTree
from torchstone.capture.tables import renew
from torchstone.capture.tensor_modes import RealWorld, StandInWorld
from torchstone.numerics.written import save_written

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


@contextmanager
def plain_holders(modules: Iterable[nn.Module]) -> Iterator[None]:
    """While open, modules hold their parameters and buffers in dictionaries.

    Libraries put other mappings in their place, such as compressed-tensors one that fetches a tensor when it is asked
    for it: what a module holds is then fetched once.
    """
    others = [
        (vars(module), name, vars(module)[name])
        for module in modules for name in ("_parameters", "_buffers") if not isinstance(vars(module)[name], dict)
    ]  # fmt: skip
    for attributes, name, entries in others:
        attributes[name] = dict(entries.items())
    try:
        yield
    finally:
        for attributes, name, entries in others:
            attributes[name] = entries


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
    save_written(tensor)
    _DATA.__set__(tensor, data)
    renew(tensor)


def _watch_looks() -> Callable[[], object]:
    Tensor.data = property(_data_of, _assign_data)  # type: ignore[assignment]
    return lambda: delattr(Tensor, "data")


# A tensor whose `data` are assigned is another one with other looks: torch tells no mode.
LOOKS_WATCHED = WhileAny(_watch_looks)


def _default_device() -> torch.device | None:
    """What `torch.set_default_device` was given: to torch, none is not the same as the cpu."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


# What a forward pass may set for the whole process, as (read, write).
_SETTINGS: tuple[tuple[Callable[[], object], Callable[..., object]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (_default_device, torch.set_default_device),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    (partial(torch.is_autocast_enabled, "cpu"), partial(torch.set_autocast_enabled, "cpu")),
    (partial(torch.get_autocast_dtype, "cpu"), partial(torch.set_autocast_dtype, "cpu")),
    (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    (torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled),
)


@contextmanager
def process_kept(*, grad: bool) -> Iterator[None]:
    """Run without compiling and with the asked grad mode; random states and settings of the process come back."""
    python_state = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = None if numpy is None else numpy.random.get_state()
    settings = [read() for read, _ in _SETTINGS]
    filters = [*warnings.filters]
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
        if numpy is not None:
            numpy.random.set_state(numpy_state)
        for (read, write), before in zip(_SETTINGS, settings, strict=True):
            if read() != before:
                write(before)
        if warnings.filters != filters:
            warnings.filters = filters


@contextmanager
def modules_kept(tree: ModuleTree, *, real: bool) -> "Iterator[KeptModules]":
    """Attributes, hooks, buffers and gradients of the modules are as before when this closes.

    Meanwhile no parameter has a gradient, as stand-ins have none: that of an earlier step would be added to.
    """
    before = KeptModules(tree, real=real)
    modules = tree.modules if real else ()
    gradients: dict[Tensor, Tensor | None] = {
        parameter: parameter.grad
        for module in modules  # stand-ins have gradients of their own
        for parameter in module._parameters.values()
        if parameter is not None
    }
    gradients |= {constant: constant.grad for constant in before.constants if constant.is_leaf}
    buffers = [buffer for module in modules for buffer in module._buffers.values() if buffer is not None]
    values = [(buffer, buffer._version, buffer.detach().clone()) for buffer in buffers]
    try:
        for parameter in gradients:
            parameter.grad = None
        yield before
    finally:
        before.restore()
        for parameter, gradient in gradients.items():
            if parameter.is_leaf and parameter.grad is not gradient:
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


class KeptModules:
    """The attributes of modules and what stands in those of them that are dictionaries, hooks among them, or lists."""

    def __init__(self, tree: ModuleTree, *, real: bool) -> None:
        self._modules = tree.modules
        self._attributes: list[tuple[dict[str, Any], dict[str, Any]]] = []  # of each module
        self._changed: list[int] | None = None
        self.constants: list[Tensor] = []  # attributes that are tensors
        dictionaries: list[dict[str, Any]] = []
        tables: list[Any] = []  # ordered dictionaries, in which modules have their hooks, lists, sets and queues
        for module, layout in zip(tree.modules, tree.layouts, strict=True):
            attributes = module.__dict__
            values = tuple(attributes.values())
            self._attributes.append((attributes, attributes.copy()))
            dictionaries += layout.dictionaries(values)
            tables += layout.tables(values)
            self.constants += [attributes[name] for name in layout.tensors if type(attributes[name]) is Tensor]
        inner = [*inner_containers(tree.modules, tree.layouts)]
        dictionaries += [one for one in inner if type(one) is dict]
        tables += [one for one in inner if type(one) is not dict]
        self._empty: list[Any] = [*filterfalse(None, dictionaries), *filterfalse(None, tables)]
        filled: list[Any] = list(filter(None, tables))
        self._filled = [(one, one.copy()) for one in filter(None, dictionaries)]
        self._filled += [(one, one.copy()) for one in filled if isinstance(one, dict)]
        self._lists: list[tuple[Any, list[Any]]] = [(one, [*one]) for one in filled if type(one) in (list, deque)]
        self._sets: list[tuple[set[object], set[object]]] = [(one, one.copy()) for one in filled if type(one) is set]
        # Stand-ins have a flag of their own.
        trained = [one for module in tree.modules for one in module._parameters.values()] if real else []
        held = (one for one in (*trained, *self.constants) if one is not None)
        self._trained = [(one, one.requires_grad) for one in held]

    def new_tensors(self, buffers: Mapping[int, Mapping[str, Tensor | None]]) -> Iterator[tuple[int, str, Tensor]]:
        """The place of a module, the name and the tensor of each attribute that is another one by now.

        Modules hold their own tables of buffers again; what else they held is given, by the places of the modules.
        """
        for place in sorted({*self._find_changed(), *buffers}):
            now, before = self._attributes[place]
            for name in layout_of(self._modules[place]).tensors:
                if now[name] is not before.get(name, before["_buffers"].get(name)):
                    yield place, name, now[name]
            yield from ((place, name, one) for name, one in buffers.get(place, {}).items() if one is not None)

    def _find_changed(self) -> list[int]:
        """The places of modules whose attributes are others by now; they change no more until they are put back."""
        if self._changed is None:
            self._changed = [
                place
                for place, (now, before) in enumerate(self._attributes)
                if [*now] != [*before] or not all(map(is_, now.values(), before.values()))
            ]
        return self._changed

    def restore(self) -> None:
        """Put back what was there."""
        for tensor, requires_grad in self._trained:
            if tensor.requires_grad is not requires_grad and tensor.is_leaf:
                tensor.requires_grad_(requires_grad)
        for container in filter(None, self._empty):
            container.clear()
        for items, before_items in self._sets:
            if items != before_items:
                items.clear()
                items.update(before_items)
        for container, parts in self._lists:
            if len(container) != len(parts) or not all(map(is_, container, parts)):
                container.clear()
                container.extend(parts)
        attributes = [self._attributes[place] for place in self._find_changed()]
        for dictionary, before in (*attributes, *self._filled):
            if [*dictionary] != [*before] or not all(map(is_, dictionary.values(), before.values())):
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

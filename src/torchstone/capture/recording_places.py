"""Where an op call comes from: the module that is running and the line of the user's code."""

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import local
from types import FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from torchstone.backends.interception import CallModule, intercepted
from torchstone.capture.backward import credit, credited

_TORCH = str(Path(torch.__file__).parent) + os.sep
_OURS = str(Path(__file__).parent.parent) + os.sep
_STANDARD = sysconfig.get_paths()["stdlib"] + os.sep
_INSTALLED = (sysconfig.get_paths()["purelib"] + os.sep, sysconfig.get_paths()["platlib"] + os.sep)


class ModulePlace(NamedTuple):
    """A module by the class of the outermost one and its path below that."""

    root: str
    path: str


_OUTSIDE = ModulePlace("", "")


class ModulePlaces:
    """Follows which module is running on each thread, by its path below the outermost one."""

    def __init__(self) -> None:
        self._threads = local()
        self._paths_below: WeakKeyDictionary[nn.Module, dict[int, str]] = WeakKeyDictionary()

    def current(self) -> "ModulePlace":
        """The innermost module running; in a backward pass the one whose op is undone."""
        if torch._C._current_graph_task_id() != -1:
            owner = credited()
            return owner if isinstance(owner, ModulePlace) else _OUTSIDE
        stack = self._stack()
        return stack[-1][1] if stack else _OUTSIDE

    @contextmanager
    def followed(self) -> Iterator[None]:
        """While open, every call of a module is seen."""

        def follow(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return self._call(really_call, module, args, kwargs)

        with intercepted(None, follow) as really_call:
            yield

    def _call(self, call: CallModule, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        stack = self._stack()
        root, caller = (stack[0][0], stack[-1][1].path) if stack else (module, "")
        place = ModulePlace(type(root).__name__, self._path(root, module, caller))
        stack.append((module, place))
        try:
            result = call(module, args, kwargs)
        finally:
            stack.pop()
        if torch.is_grad_enabled():
            credit(_tensors_of((args, kwargs)), _tensors_of(result), place)
        return result

    def _path(self, root: nn.Module, module: nn.Module, caller: str) -> str:
        """The path below the root; a module that is no part of it goes by its class below its caller."""
        if module is root:
            return ""
        paths = self._paths_below.get(root)
        if paths is None or id(module) not in paths:
            paths = self._paths_below[root] = {id(part): path for path, part in root.named_modules()}
        below = f"{caller}." if caller else ""
        return paths.get(id(module), f"{below}{type(module).__name__}")

    def _stack(self) -> list[tuple[nn.Module, ModulePlace]]:
        stack: list[tuple[nn.Module, ModulePlace]] | None = getattr(self._threads, "stack", None)
        if stack is None:
            stack = self._threads.stack = []
        return stack


def _tensors_of(value: Any) -> list[Tensor]:
    """The tensors in plain containers and in objects that are mappings, as model outputs are."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [tensor for item in value for tensor in _tensors_of(item)]


def call_site() -> str:
    """File and line of the innermost code that is neither torch's, torchstone's nor Python's own; "" without any."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        place = _place_of(frame.f_code.co_filename)
        if place:
            return f"{place}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@cache
def _place_of(file: str) -> str:
    """A file as it is written down, "" if it is not the user's: below the current folder or the installed packages."""
    if file.startswith(("<", _TORCH, _OURS)):
        return ""
    for installed in _INSTALLED:
        if file.startswith(installed):
            return file.removeprefix(installed)
    if file.startswith(_STANDARD):
        return ""
    here = str(Path.cwd()) + os.sep
    return file.removeprefix(here)

"""Faults that the backend `faulty` plants: every way in which a backend can misbehave, and where it happens."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary

from torchstone.backends.protocol import CompileFailed, Unsupported

# --- What happens ---


_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Dose:
    """How much of a fault."""

    op: str = ""  # where it happens
    seconds: float = 1.0  # of slow
    bytes: int = 1 << 32  # of memory and flood; beyond any limit a test sets, and the machine lives on
    threads: int = 2_000  # enough to be noticed; more would harm the machine


def shifted(result: object) -> Any:
    """Other values of the same shape and type."""
    return tree_map(lambda value: _shifted(value) if isinstance(value, Tensor) else value, result)


def _shifted(value: Tensor) -> Tensor:
    if value.dtype == torch.bool:
        return ~value
    largest = value.abs().max() if value.numel() and value.is_floating_point() else 1
    return (value.flatten().roll(1).reshape(value.shape) + largest + 1).to(value.dtype)


def scaled(result: object) -> Any:
    """Twice the values: correlation does not see it."""
    return tree_map(lambda value: value + value if isinstance(value, Tensor) else value, result)


def with_nan(result: object) -> Any:
    """NaN in the first place of every float tensor."""

    def poisoned(value: object) -> object:
        if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
            return value
        value = value.clone()
        value[(0,) * value.dim()] = float("nan")
        return value

    return tree_map(poisoned, result)


def refuse(dose: Dose) -> NoReturn:
    """Say that the op is not supported."""
    msg = f"no rule for {dose.op}"
    raise Unsupported(msg, ops=(dose.op,))


def break_compiling(dose: Dose) -> NoReturn:
    """Break while compiling."""
    msg = f"internal compiler error at {dose.op}"
    raise CompileFailed(msg)


def raise_error(dose: Dose) -> NoReturn:
    """Raise in the run."""
    msg = f"the device reported an error in {dose.op}"
    raise RuntimeError(msg)


def be_slow(dose: Dose) -> None:
    """Take long, then go on."""
    time.sleep(dose.seconds)


def hang(_dose: Dose) -> NoReturn:
    """Never come back, and do not listen to a polite request to end."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(3600)


def crash(_dose: Dose) -> None:
    """Read where nothing is: SIGSEGV."""
    ctypes.string_at(0)


def abort(_dose: Dose) -> NoReturn:
    """End by SIGABRT, as a failed assertion in a driver does."""
    os.abort()


def kill(_dose: Dose) -> None:
    """End by SIGKILL, as the kernel does when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


def leave(_dose: Dose) -> NoReturn:
    """End the process with exit code 7."""
    os._exit(7)


def leave_without_a_word(_dose: Dose) -> NoReturn:
    """End the process with exit code 0, without an answer."""
    os._exit(0)


def take_memory(dose: Dose) -> None:
    """Take memory and use it, until there is no more."""
    taken = []
    for _ in range(dose.bytes // _CHUNK_BYTES):
        taken.append(bytearray(os.urandom(1)) * _CHUNK_BYTES)


def flood_output(dose: Dose) -> None:
    """Write to the process's own stdout, past Python."""
    chunk = b"the device talks a lot\n" * (_CHUNK_BYTES // 23)
    for _ in range(max(1, dose.bytes // len(chunk))):
        os.write(1, chunk)


def start_threads(dose: Dose) -> None:
    """Start threads that never end."""
    for _ in range(dose.threads):
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()


BEFORE: dict[str, Callable[[Dose], None]] = {  # what happens instead of the op, or before it
    "unsupported": refuse,
    "compile_error": break_compiling,
    "raise": raise_error,
    "slow": be_slow,
    "hang": hang,
    "crash": crash,
    "abort": abort,
    "kill": kill,
    "exit": leave,
    "no_answer": leave_without_a_word,
    "memory": take_memory,
    "flood": flood_output,
    "threads": start_threads,
}
AFTER: dict[str, Callable[[Any], Any]] = {
    "wrong": shifted,
    "scaled": scaled,
    "nan": with_nan,
}  # what becomes of results


# --- Where it happens ---


def _is_named(op: str, pattern: str) -> bool:
    """Whether a pattern means an op; a bare name means all overloads of it."""
    return fnmatchcase(op, pattern) or op.split(".")[1:2] == [pattern]


@dataclass(frozen=True)
class Plant:
    """One fault and the op calls that it happens in: those that fit everything said here."""

    fault: str
    op: str = "*"  # pattern of the op's name: "aten.mm.*", or the bare name: "mm"
    shape: Sequence[int] | None = None  # one of the tensors that go in has this shape
    module: str = ""  # pattern of the class or path of the innermost module that is running
    after: str = ""  # pattern of an op: one of the tensors that go in came out of it
    nth: int | None = None  # only the nth of the calls that fit, counted from 1 in each run
    seconds: float = Dose.seconds
    bytes: int = Dose.bytes
    threads: int = Dose.threads

    def __post_init__(self) -> None:
        if self.fault not in (*BEFORE, *AFTER):
            msg = f"there is no fault {self.fault!r}; known are {', '.join([*AFTER, *BEFORE])}"
            raise ValueError(msg)


class FaultMode(TorchDispatchMode):
    """Looks at every op call and lets the planted faults happen."""

    def __init__(self, plants: Sequence[Plant]) -> None:
        super().__init__()
        self.plants = plants
        self.running: list[tuple[str, str]] = []  # path and class of the modules that are running
        self._seen = [0] * len(plants)
        self._made_by = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[object, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        """Run one op, with what is planted there."""
        kwargs = kwargs or {}
        name = str(func)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        faults = [plant for number, plant in enumerate(self.plants) if self._is_due(number, plant, name, tensors)]
        for plant in faults:
            if plant.fault in BEFORE:
                BEFORE[plant.fault](Dose(name, plant.seconds, plant.bytes, plant.threads))
        result = func(*args, **kwargs)
        for plant in faults:
            if plant.fault in AFTER:
                result = _changed(func, result, AFTER[plant.fault](result))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._made_by[leaf] = name
        return result

    def left(self, *_: object) -> None:
        """The innermost module has ended."""
        self.running.pop()

    def _is_due(self, number: int, plant: Plant, name: str, tensors: list[Tensor]) -> bool:
        fits = (
            _is_named(name, plant.op)
            and (plant.shape is None or any(tuple(plant.shape) == tuple(one.shape) for one in tensors))
            and (not plant.after or any(_is_named(self._made_by.get(one, ""), plant.after) for one in tensors))
            and (not plant.module or any(fnmatchcase(word, plant.module) for word in (self.running or [("", "")])[-1]))
        )
        self._seen[number] += fits
        return fits and plant.nth in (None, self._seen[number])


def _changed(func: Any, result: object, other: Any) -> object:
    """The other result; an op that writes to its argument keeps giving that one, with the other values."""
    writes = any(argument.alias_info and argument.alias_info.is_write for argument in func._schema.arguments)
    if not writes or not isinstance(result, Tensor):
        return other
    return result.copy_(other)


@contextmanager
def planted(module: nn.Module, plants: Sequence[Plant]) -> Iterator[FaultMode]:
    """Let faults happen in what runs inside; every hook is gone on exit."""
    mode = FaultMode(plants)
    with ExitStack() as stack:
        for path, one in module.named_modules():
            entry = (path, type(one).__name__)
            before = one.register_forward_pre_hook(lambda *_, entry=entry: mode.running.append(entry))
            after = one.register_forward_hook(mode.left, always_call=True)
            stack.callback(before.remove)
            stack.callback(after.remove)
        stack.enter_context(mode)
        yield mode

"""The ways in which a backend can misbehave, each on demand."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from torchstone.backends.protocol import CompileFailed, Unsupported

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Dose:
    """How much of a fault."""

    op: str = ""  # where it happens
    seconds: float = 1.0  # of slow
    bytes: int = 1 << 32  # of memory and flood; beyond any limit a test sets, and the machine lives on
    threads: int = 2_000  # enough to be noticed; more would harm the machine


def shifted(result: Any) -> Any:
    """Other values of the same shape and type."""
    return tree_map(lambda value: _shifted(value) if isinstance(value, Tensor) else value, result)


def _shifted(value: Tensor) -> Tensor:
    if value.dtype == torch.bool:
        return ~value
    largest = value.abs().max() if value.numel() and value.is_floating_point() else 1
    return (value.flatten().roll(1).reshape(value.shape) + largest + 1).to(value.dtype)


def scaled(result: Any) -> Any:
    """Twice the values: correlation does not see it."""
    return tree_map(lambda value: value + value if isinstance(value, Tensor) else value, result)


def with_nan(result: Any) -> Any:
    """NaN in the first place of every float tensor."""

    def poisoned(value: Any) -> Any:
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

"""Tasks from a channel -> answers, inside the process that they may break. Needs the standard library only.

A task is one line of JSON, {"entry": "module:function", "payload": {...}}, and so is its answer. The channel is a
socket of its own: what the task prints goes to stdout and stderr, which the other side reads apart. There a mark says
where the output of a task ends: by the time its answer is read, the next task may be printing.
"""

import contextlib
import importlib
import json
import os
import re
import socket
import sys
import time
import traceback
from typing import Any

from torchstone.workers import containment

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

MOST_ANSWER_BYTES = 64 * 1024 * 1024
MOST_ERROR_CHARACTERS = 2_000
MOST_TRACEBACK_CHARACTERS = 16_000
END_OF_TASK = b"\0\1end of task\1\0\n"  # in the output; no task prints it
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc")


def resolve(entry: str) -> Any:
    """The function that "module:function" names."""
    module, _, name = entry.partition(":")
    return getattr(importlib.import_module(module), name)


def run_tasks(channel: socket.socket) -> None:
    """Say that this process is ready, then answer every task until one raises or the other side hangs up."""
    containment.limit_writable_memory()
    resident_bytes, own_bytes = containment.held_bytes()
    channel.sendall(_line({"ready": os.getpid(), "resident_bytes": resident_bytes, "own_bytes": own_bytes}))
    output = os.dup(1)  # a task may send its own elsewhere
    with channel.makefile("rb", buffering=1 << 16) as lines:
        for line in lines:
            answer, fine = _answer(json.loads(line))
            _mark_end(output)
            channel.sendall(answer)
            if not fine:  # what raised may have left anything behind: the next task deserves a fresh process
                return


def _mark_end(output: int) -> None:
    os.set_blocking(output, True)
    with contextlib.suppress(OSError):  # the reader is gone
        os.write(output, END_OF_TASK)


def describe_error(error: BaseException) -> dict[str, object]:
    """An exception as the other side reads it."""
    message = traceback.format_exception_only(type(error), error)[-1].strip()
    frames = error.__traceback__.tb_next if error.__traceback__ else None  # without the frame of this file
    text = "".join(traceback.format_exception(type(error), error, frames))
    return {
        "error": _shortened(message, MOST_ERROR_CHARACTERS),
        "traceback": _shortened(text, MOST_TRACEBACK_CHARACTERS),
        "out_of_memory": isinstance(error, MemoryError) or any(word in message.lower() for word in _NO_MEMORY),
    }


def _answer(task: dict[str, Any]) -> tuple[bytes, bool]:
    start = time.perf_counter()
    fine = True
    try:
        document = {"answer": resolve(task["entry"])(task["payload"])}
        elapsed_s = time.perf_counter() - start
        line = _encoded(document, task["entry"], elapsed_s)
    except BaseException as error:  # noqa: BLE001 - the border of the process: whatever was raised is the outcome
        line = _line(describe_error(error) | _measured(time.perf_counter() - start))
        fine = False
    containment.flush_output()
    return line, fine


def _encoded(document: dict[str, Any], entry: str, elapsed_s: float) -> bytes:
    try:
        line = _line(document | _measured(elapsed_s))
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"what {entry} returned is not JSON: {error}"
        raise TypeError(msg) from error
    if len(line) > MOST_ANSWER_BYTES:
        msg = f"what {entry} returned is {len(line)} bytes of JSON; at most {MOST_ANSWER_BYTES} are taken"
        raise ValueError(msg)
    return line


def _measured(elapsed_s: float) -> dict[str, object]:
    return {"elapsed_s": elapsed_s, "peak_bytes": containment.peak_bytes()}


def _line(document: dict[str, object]) -> bytes:
    text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    # the name of a file need not be UTF-8: what stands for its other bytes is written out, as JSON has no place for it
    return _LONE_SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text).encode() + b"\n"


def _shortened(text: str, most: int) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()  # lone surrogates are no JSON
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n[... {len(text) - most} characters left out ...]\n{text[-most // 2 :]}"


def redirect_output(descriptor: int) -> None:
    """Send stdout and stderr, of Python and of everything else, to one pipe; there is nothing to read from stdin."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]

"""trace_in_child(): run a test, script or model in a process of its own and give what it called; imports no torch."""

import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from torchstone.errors import InputError, require_package
from torchstone.record.base import Record
from torchstone.record.codec import load
from torchstone.record.op_log import OpLog, TargetKind

_STDERR = 2
_CHILD = "torchstone.capture.recording_child"
REFUSAL = "refusal.txt"  # beside the log: why the process did not run the target


class TraceRequest(Record, frozen=True, kw_only=True):
    """What to trace."""

    kind: TargetKind
    target: str
    arguments: tuple[str, ...] = ()
    run: str  # tells this trace from all others
    looks: int
    log: str = ""  # where the process writes what it saw
    ttnn: str = ""  # the folder for what ttnn's own tracer writes; "": ttnn is left alone
    inputs: str | None = None
    options: dict[str, Any] = {}  # InputOptions of a model
    backward: bool = False
    command: str = ""


def trace_in_child(request: TraceRequest) -> OpLog:
    """Run the target; what it prints goes to stderr. A process that dies leaves nothing, and that is an error."""
    require_package("torch", needed_for="tracing")  # the child would say so with a traceback
    try:
        with TemporaryDirectory(prefix="torchstone-trace-") as folder:
            return _trace(request, Path(folder))
    except OSError as error:
        msg = f"tracing needs a temporary file: {error.strerror or error}; make room, or set TMPDIR to another disk"
        raise InputError(msg) from error


def _trace(request: TraceRequest, folder: Path) -> OpLog:
    log, asked, refusal = folder / "log.json", folder / "request.json", folder / REFUSAL
    asked.write_bytes(msgspec.json.encode(msgspec.structs.replace(request, log=str(log))))
    command = [sys.executable, "-m", _CHILD, str(asked)]
    done = subprocess.run(command, stdout=_STDERR, check=False)  # noqa: S603 - our own module
    if refusal.is_file():
        raise InputError(refusal.read_text(encoding="utf-8"))
    if done.returncode:
        raise InputError(_why(request, done.returncode))
    return load(log, OpLog)


def _why(request: TraceRequest, code: int) -> str:
    if code < 0:
        return f"{request.target} was ended by {signal.Signals(-code).name}, so nothing of it was recorded"
    return f"{request.target} could not be traced; what it said stands above"

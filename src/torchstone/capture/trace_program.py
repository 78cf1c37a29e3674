"""Run a test, script or model in a process of its own and return the ops it called; imports no torch."""

import ast
import signal
import subprocess
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from torchstone.errors import InputError, require_package
from torchstone.record.base import Record
from torchstone.record.codec import load
from torchstone.record.config import OpLog, TargetKind
from torchstone.record.files import read_file
from torchstone.temporary import temporary_folder

# What the TARGET of a trace is: a pytest node, a script or a model.


_MODEL_NAMES = ("load_model", "ModelLoader")


def kind_of(target: str, arguments: tuple[str, ...]) -> TargetKind:
    """Tell a target by its name, and a lone file by whether it defines a model."""
    path, colons, name = target.partition("::")
    file = Path(path)
    _require(file)
    if colons:
        is_test = _is_test_file(file) or name.startswith(("test", "Test"))
        return TargetKind.PYTEST if is_test else TargetKind.MODEL
    if file.is_dir() and not (file / "trace.json").exists() and not (file / "config.json").exists():
        return TargetKind.PYTEST
    if file.suffix != ".py":
        return TargetKind.MODEL
    if _is_test_file(file):
        return TargetKind.PYTEST
    return TargetKind.MODEL if not arguments and _defines_a_model(file) else TargetKind.SCRIPT


def _require(file: Path) -> None:
    """What is named like a file of Python must be one: said at once, with the way out."""
    if file.suffix != ".py" or file.is_file():
        return
    if file.is_dir():
        msg = f"{file} is a folder; give a file in it"
        raise InputError(msg)
    beside = [path.name for path in file.parent.glob("*.py")] if file.parent.is_dir() else []
    near = get_close_matches(file.name, beside, n=3)
    meant = f"did you mean {' or '.join(str(file.parent / name) for name in near)}?" if near else "check the path."
    msg = f"there is no file {file}; {meant} A target is a test, a script or a model: see `torchstone trace --help`"
    raise InputError(msg)


def _is_test_file(file: Path) -> bool:
    return file.suffix == ".py" and (file.stem.startswith("test_") or file.stem.endswith("_test"))


def _defines_a_model(file: Path) -> bool:
    try:
        tree = ast.parse(read_file(file), filename=str(file))
    except (SyntaxError, ValueError) as error:
        msg = f"{file} is not readable Python: {error}; mend it, or give another file"
        raise InputError(msg) from error
    defined = (ast.FunctionDef, ast.ClassDef)
    return any(isinstance(node, defined) and node.name in _MODEL_NAMES for node in tree.body)


# trace_in_child(): run a test, script or model in a process of its own and give what it called; imports no torch.


_STDERR = 2
_CHILD = "torchstone.capture.trace_child"
TTNN_CHILD = "torchstone.capture.ttnn_child:trace"  # in an environment with ttnn, which needs no torchstone
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
    chains: bool = False  # also chains of calls that feed each other
    command: str = ""


def trace_in_child(request: TraceRequest) -> OpLog:
    """Run the target; what it prints goes to stderr. A process that dies leaves nothing, and that is an error."""
    require_package("torch", needed_for="tracing")  # the child would say so with a traceback
    try:
        with temporary_folder("trace") as folder:
            return _trace(request, folder)
    except OSError as error:
        msg = f"tracing needs a temporary file: {error.strerror or error}; make room, or set TMPDIR to another disk"
        raise InputError(msg) from error


def _trace(request: TraceRequest, folder: Path) -> OpLog:
    log, asked, refusal = folder / "log.json", folder / "request.json", folder / REFUSAL
    try:
        asked.write_bytes(msgspec.json.encode(msgspec.structs.replace(request, log=str(log))))
    except UnicodeEncodeError as error:
        msg = f"{request.target} has a name that is not UTF-8; rename it, or give another file"
        raise InputError(msg) from error
    command = [sys.executable, "-m", _CHILD, str(asked)]
    done = subprocess.run(command, stdout=_STDERR, check=False)  # noqa: S603 - our own module
    if refusal.is_file():
        raise InputError(refusal.read_text(encoding="utf-8"))
    if done.returncode or not log.is_file():
        raise InputError(_why(request, done.returncode))
    return load(log, OpLog)


def _why(request: TraceRequest, code: int) -> str:
    if code < 0:
        return f"{request.target} was ended by {signal.Signals(-code).name}, so nothing of it was recorded"
    if code == 0:
        return f"{request.target} ended its process before it was over, as os._exit does; nothing of it was recorded"
    return f"{request.target} could not be traced; what it said stands above"

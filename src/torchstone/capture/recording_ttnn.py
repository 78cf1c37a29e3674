"""ttnn's own operation tracer, switched on while a target runs: it writes a JSON file for each call of an operation.

A folder for each source, named and told as tt-metal's tools do it, so that they can read a kept folder, too.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from torchstone.record.codec import write_atomically
from torchstone.record.op_log import SourceEnding

_FOLDER_VARIABLE = "TTNN_OPERATION_TRACE_DIR"  # read anew at each call
_CONFIG_VARIABLE = "TTNN_CONFIG_OVERRIDES"  # read once, when ttnn is imported
_FAST_MODE = "enable_fast_runtime_mode"  # ttnn's usual mode: its tracer sees nothing in it
_SLOW_MODE = json.dumps({_FAST_MODE: False})
_NAME_LETTERS = 16
_NOT_RECORDED = "so its operations were not recorded"


class OperationTracer(Protocol):
    """What is used of `ttnn.operation_tracer`."""

    def enable_tracing(self, enable: bool = True) -> None:  # noqa: FBT001, FBT002 - ttnn's signature
        """Switch the tracer on or off."""


class TtnnCalls:
    """The calls of ttnn's operations, source by source; where they cannot be seen, `note` says why."""

    def __init__(self, folder: Path) -> None:
        self.note = ""
        self.version = ""  # of ttnn; "" while its tracer was not switched on
        self._folder = folder
        self._tracer: OperationTracer | None = None
        slow_mode_from_now_on()

    @contextmanager
    def followed(self, source: str) -> Iterator[None]:
        """While open, ttnn writes every call into the folder of a source."""
        tracer = self._switchable()
        if tracer is None:
            yield
            return
        before = os.environ.get(_FOLDER_VARIABLE)
        os.environ[_FOLDER_VARIABLE] = str(self._folder_of(source))
        tracer.enable_tracing(enable=True)
        try:
            yield
        finally:
            tracer.enable_tracing(enable=False)
            if before is None:
                os.environ.pop(_FOLDER_VARIABLE, None)
            else:
                os.environ[_FOLDER_VARIABLE] = before

    def tell_ending(self, source: str, ending: SourceEnding) -> None:
        """Write beside the calls of a source how it ended."""
        folder = self._folder_of(source)
        if folder.is_dir():
            _write(folder / "_status.json", {"test_nodeid": source, "status": ending.value})

    def tell_run(self, *, traced: str, run: str) -> None:
        """Write what was traced, which names the model, and in which run."""
        if self._folder.is_dir():
            _write(self._folder / "_trace_metadata.json", {"test_source": traced, "trace_uid": run})

    def _folder_of(self, source: str) -> Path:
        return self._folder / sha256(source.encode()).hexdigest()[:_NAME_LETTERS]

    def _switchable(self) -> OperationTracer | None:
        """The tracer, looked for until it is found: a test may be what puts ttnn on the path."""
        if self._tracer is None and not self.note:
            self._tracer = self._imported()
        return self._tracer

    def _imported(self) -> OperationTracer | None:
        if find_spec("ttnn") is None:
            return None
        try:
            ttnn = import_module("ttnn")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - another package may raise anything while it loads
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self.note = f"ttnn cannot be imported ({reason}), {_NOT_RECORDED}; see `python -c 'import ttnn'`"
            return None
        try:
            tracer: Any = import_module("ttnn.operation_tracer")
        except ImportError:
            tracer = None
        if not hasattr(tracer, "enable_tracing"):
            self.note = f"this ttnn has no operation tracer, {_NOT_RECORDED}; a ttnn of 2026 or later has one"
            return None
        if getattr(getattr(ttnn, "CONFIG", None), _FAST_MODE, False):
            wanted = f"{_CONFIG_VARIABLE}='{_SLOW_MODE}'"
            self.note = f"ttnn was imported in its fast mode, {_NOT_RECORDED}; set {wanted} beforehand"
            return None
        self.version = str(getattr(ttnn, "__version__", "unknown"))
        return tracer


def slow_mode_from_now_on() -> None:
    """Ask ttnn, before anybody imports it, for the mode in which operations can be traced; keeps what else is asked."""
    given = os.environ.get(_CONFIG_VARIABLE)
    try:
        asked = json.loads(given) if given else {}
    except ValueError:
        return  # ttnn will say what is wrong with it
    if isinstance(asked, dict):
        os.environ[_CONFIG_VARIABLE] = json.dumps(asked | {_FAST_MODE: False})


def _write(path: Path, document: dict[str, str]) -> None:
    write_atomically(path, json.dumps(document).encode())

"""ttnn's own operation tracer and graph capture, switched on while a target runs.

The tracer writes a JSON file for each call of an operation, in a folder for each source that is named and written as
tt-metal's tools do it, so that they can read a kept folder, too. The graph capture writes a report with the memory of
the device. Needs the standard library alone, and ttnn only once a source is followed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from torchstone.foreign import foreign_code

_FOLDER_VARIABLE = "TTNN_OPERATION_TRACE_DIR"  # read anew at each call
_CONFIG_VARIABLE = "TTNN_CONFIG_OVERRIDES"  # read once, when ttnn is imported
_FAST_MODE = "enable_fast_runtime_mode"  # ttnn's usual mode: its tracer sees nothing in it
_SLOW_MODE = json.dumps({_FAST_MODE: False})
_NAME_LETTERS = 16
_NOT_RECORDED = "so its operations were not recorded"
SITES = "_call_sites.jsonl"  # beside the calls of a source: the line of Python that made each
STATUS, RUNNING = "_status.json", "running"
REPORT = "graph_report"  # a folder beside the calls of a source: report.json, as `ttnn.graph_report` reads it
_OURS = str(Path(__file__).parents[2]) + os.sep
_NOT_THE_USERS = (f"{os.sep}_pytest{os.sep}", f"{os.sep}pluggy{os.sep}", f"{os.sep}ttnn{os.sep}decorators.py")


class OperationTracer(Protocol):
    """What is used of `ttnn.operation_tracer`."""

    def enable_tracing(self, enable: bool = True) -> None:  # noqa: FBT001, FBT002 - ttnn's signature
        """Switch the tracer on or off."""


class TtnnCalls:
    """The calls of ttnn's operations, source by source; where they cannot be seen, `note` says why."""

    def __init__(self, folder: Path, *, memory: bool = False) -> None:
        self.note = ""
        self.version = ""  # of ttnn; "" while its tracer was not switched on
        self._folder = folder
        self._tracer: OperationTracer | None = None
        self._graph = _GraphCapture() if memory else None
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
        if self._graph is not None:
            self._folder_of(source).mkdir(parents=True, exist_ok=True)
            self.tell_ending(source, RUNNING)  # what stays where the process dies
            self._graph.follow(self._folder_of(source) / REPORT)
        try:
            yield
        finally:
            tracer.enable_tracing(enable=False)
            if before is None:
                os.environ.pop(_FOLDER_VARIABLE, None)
            else:
                os.environ[_FOLDER_VARIABLE] = before

    def finish(self) -> None:
        """Write the report of the source that was followed last; before another source begins, and at the end."""
        if self._graph is not None:
            self._graph.leave()

    def tell_ending(self, source: str, ending: str) -> None:
        """Write beside the calls of a source how it ended."""
        folder = self._folder_of(source)
        if folder.is_dir():
            _write(folder / STATUS, {"test_nodeid": source, "status": ending})

    def tell_run(self, *, traced: str, run: str) -> None:
        """Write what was traced, which names the model, and in which run."""
        if self._folder.is_dir():
            _write(self._folder / "_trace_metadata.json", {"test_source": traced, "trace_uid": run})

    def _folder_of(self, source: str) -> Path:
        return _folder_of(self._folder, source)

    def _switchable(self) -> OperationTracer | None:
        """The tracer, looked for until it is found: a test may be what puts ttnn on the path."""
        if self._tracer is None and not self.note:
            self._tracer = self._imported()
        return self._tracer

    def _imported(self) -> OperationTracer | None:
        if find_spec("ttnn") is None:
            return None
        with foreign_code(exit_is_answer=True) as ran:  # another package may raise anything while it loads
            ttnn = import_module("ttnn")
        error = ran.error or ran.exit
        if error is not None:
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
        self.version = str(getattr(ttnn, "__version__", "") or _version())
        _write_sites(tracer)
        if self._graph is not None:
            self._graph.install(ttnn)
        found: OperationTracer = tracer
        return found


def _folder_of(folder: Path, source: str) -> Path:
    return folder / sha256(source.encode()).hexdigest()[:_NAME_LETTERS]


def reports_of(folder: Path, source: str) -> list[Path]:
    """The graph reports of a source: one for each device that it opened."""
    return sorted(_folder_of(folder, source).glob(f"{REPORT}*/report.json"))


def statuses_in(folder: Path) -> dict[str, str]:
    """The sources of a trace that was kept, and how each ended."""
    found = {}
    for path in sorted(folder.glob(f"*/{STATUS}"), key=lambda one: one.stat().st_mtime_ns):
        about = json.loads(path.read_text(encoding="utf-8"))
        found[str(about["test_nodeid"])] = str(about["status"])
    return found


def slow_mode_from_now_on() -> None:
    """Ask ttnn, before it is imported, for the mode in which operations can be traced; keeps what else is asked."""
    given = os.environ.get(_CONFIG_VARIABLE)
    try:
        asked = json.loads(given) if given else {}
    except ValueError:
        return  # ttnn will say what is wrong with it
    if isinstance(asked, dict):
        os.environ[_CONFIG_VARIABLE] = json.dumps(asked | {_FAST_MODE: False})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ttnn")
    except PackageNotFoundError:
        return "unknown"


def _write(path: Path, document: dict[str, str]) -> None:
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(document), encoding="utf-8")
    beside.replace(path)


# --- Lines of Python ---


def _write_sites(tracer: Any) -> None:
    """Have the tracer write the line of each call beside its file; it does not keep any itself."""
    write = getattr(tracer, "serialize_operation_parameters", None)
    if write is None or hasattr(write, "with_sites"):
        return

    def written(*arguments: object, **named: object) -> None:
        before = tracer._OPERATION_COUNTER
        write(*arguments, **named)
        if before != tracer._OPERATION_COUNTER:  # else it is a call inside the tracer's own work
            place = os.environ.get(_FOLDER_VARIABLE)
            site = call_site(sys._getframe(1))
            if place and site:
                line = json.dumps({"operation_id": tracer._OPERATION_COUNTER, "call_site": site})
                with (Path(place) / SITES).open("a", encoding="utf-8") as file:
                    file.write(line + "\n")

    written.with_sites = True  # type: ignore[attr-defined] # a mark, so that it is wrapped once
    tracer.serialize_operation_parameters = written


def call_site(frame: FrameType | None) -> str:
    """File and line of the innermost code that is neither ttnn's, pytest's nor torchstone's."""
    here = str(Path.cwd()) + os.sep
    package = str(Path(import_module("ttnn").__file__ or "").parent) + os.sep
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(("<", _OURS, package)) and not any(part in file for part in _NOT_THE_USERS):
            return f"{file.removeprefix(here)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


# --- Memory ---

_OPEN = ("open_device", "open_mesh_device", "CreateDevice", "CreateDevices")
_CLOSE = ("close_device", "close_mesh_device", "CloseDevice", "CloseDevices")


class _GraphCapture:
    """ttnn's graph capture, from the begin of a source to its end or to the end of its device.

    ttnn ends the process where a capture begins before the device is open, or where a tensor is freed on a closed
    device while a capture runs. A capture begins once a device is open, and its report is written before it closes.
    """

    def __init__(self) -> None:
        self._ttnn: Any = None
        self._folder: Path | None = None
        self._reports = 0
        self._open = False
        self._devices = False  # whether one is open: a capture that begins before it ends the process, too

    def install(self, ttnn: Any) -> None:
        """Follow devices that open and close."""
        self._ttnn = ttnn
        for home in (ttnn._ttnn.device, ttnn._ttnn.multi_device, ttnn.device, ttnn.distributed, ttnn):
            for name in _CLOSE:
                if hasattr(home, name):
                    setattr(home, name, _after(self._closes, getattr(home, name)))
            for name in _OPEN:
                if hasattr(home, name):
                    setattr(home, name, _before(getattr(home, name), self._opened))

    def _opened(self) -> None:
        self._devices = True
        self._begin()

    def _closes(self) -> None:
        self._end()
        self._devices = False

    def follow(self, folder: Path) -> None:
        """Capture from now on into a folder; a source that is followed again goes on."""
        if folder != self._folder:
            self.leave()
            self._folder, self._reports = folder, 0
        self._begin()

    def leave(self) -> None:
        """Write what was captured, and capture nothing more."""
        self._end()
        self._folder = None

    def _begin(self) -> None:
        graph = self._ttnn.graph
        if self._open or not self._devices or self._folder is None or graph.is_graph_capture_active():
            return
        graph.enable_python_stack_traces()
        graph.enable_detailed_buffer_tracing()
        graph.begin_graph_capture(graph.RunMode.NORMAL)
        self._open = True

    def _end(self) -> None:
        if not self._open or self._folder is None:
            return
        graph = self._ttnn.graph
        self._open = False
        if not graph.is_graph_capture_active():
            return  # the target ended the capture itself: the report is its own
        self._reports += 1
        folder = self._folder if self._reports == 1 else self._folder.with_name(f"{self._folder.name}_{self._reports}")
        folder.mkdir(parents=True, exist_ok=True)
        graph.end_graph_capture_to_file(str(folder / "report.json"))
        graph.disable_python_stack_traces()
        graph.disable_detailed_buffer_tracing()


def _before(first: Callable[..., object], then: Callable[[], None]) -> Callable[..., object]:
    def called(*arguments: object, **named: object) -> object:
        found = first(*arguments, **named)
        then()
        return found

    return called


def _after(first: Callable[[], None], then: Callable[..., object]) -> Callable[..., object]:
    def called(*arguments: object, **named: object) -> object:
        first()
        return then(*arguments, **named)

    return called

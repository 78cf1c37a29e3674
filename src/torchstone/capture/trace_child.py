"""The process that a traced program runs in: records aten ops, and ttnn operations where ttnn is installed."""

import json
import os
import platform
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import torch

from torchstone import __version__
from torchstone.capture.op_log import Recording
from torchstone.capture.trace_program import REFUSAL, TraceRequest
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE, InputError
from torchstone.models.inputs import InputOptions
from torchstone.record.codec import save, write_atomically
from torchstone.record.config import OpLog, SourceEnding, TargetKind, TracedSource

# ttnn's own operation tracer, switched on while a target runs: it writes a JSON file for each call of an operation. A
# folder for each source, named and written as tt-metal's tools do it, so that they can read a kept folder, too.


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
            tracer: object = import_module("ttnn.operation_tracer")
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


# The process that a traced program runs in: reads a request, runs the target, writes an op log.


_NO_TESTS = 5
_RAN = (0, 1)  # pytest: all passed, some failed


def trace(request: TraceRequest) -> OpLog:
    """Run the target and give what was seen."""
    recordings: list[Recording] = []
    ttnn = TtnnCalls(Path(request.ttnn)) if request.ttnn else None

    def new_recording(source: str) -> Recording:
        beside = nullcontext if ttnn is None else partial(ttnn.followed, source)
        recordings.append(Recording(looks=request.looks, beside=beside))
        return recordings[-1]

    run_target = {
        TargetKind.PYTEST: _trace_tests,
        TargetKind.SCRIPT: _trace_script,
        TargetKind.MODEL: _trace_model,
    }[request.kind]
    sources, notes = run_target(request, new_recording)
    versions = {"torchstone": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    if ttnn is not None:
        _tell(ttnn, request, sources)
        notes += (ttnn.note,) if ttnn.note else ()
        versions |= {"ttnn": ttnn.version} if ttnn.version else {}
    return OpLog(
        target=request.target,
        kind=request.kind,
        run=request.run,
        created=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        command=request.command,
        versions=versions,
        sources=sources,
        roles={seen.configuration.op: seen.role.value for one in recordings for seen in one.seen.values()},
        notes=notes,
    )


Traced = tuple[tuple[TracedSource, ...], tuple[str, ...]]
NewRecording = Callable[[str], Recording]  # of a source, by its name


def _tell(ttnn: TtnnCalls, request: TraceRequest, sources: tuple[TracedSource, ...]) -> None:
    """Put names to the calls that ttnn's tracer wrote down; a test's model is the one that its environment names."""
    for source in sources:
        ttnn.tell_ending(source.name, source.ending)
    model = os.environ.get("HF_MODEL")
    if request.kind is TargetKind.MODEL:
        traced = sources[0].name
    else:
        traced = f"{request.target} [HF_MODEL:{model}]" if model else request.target
    ttnn.tell_run(traced=traced, run=request.run)


def _trace_tests(request: TraceRequest, new_recording: NewRecording) -> Traced:
    try:
        import pytest
    except ModuleNotFoundError:
        msg = f"tracing {request.target} needs pytest: pip install pytest"
        raise InputError(msg) from None
    from torchstone.capture.trace_pytest import RecordingPlugin

    plugin = RecordingPlugin(new_recording)
    code = int(pytest.main([request.target, "-p", "no:cacheprovider", *request.arguments], plugins=[plugin]))
    if code not in _RAN:
        why = "found no test there" if code == _NO_TESTS else f"ended with its exit code {code}"
        msg = f"pytest {why}; try `pytest {request.target}` first"
        raise InputError(msg)
    sources = tuple(
        _source(
            recording,
            request,
            name=name,
            ending=plugin.endings.get(name, SourceEnding.FAILED),
            detail=plugin.details.get(name, ""),
        )
        for name, recording in plugin.recordings.items()
    )
    return sources, ()


def _trace_script(request: TraceRequest, new_recording: NewRecording) -> Traced:
    script = Path(request.target)
    sys.argv = [request.target, *request.arguments]
    sys.path[0] = str(script.resolve().parent)
    name = " ".join([request.target, *request.arguments])
    recording = new_recording(name)
    error: BaseException | None = None
    try:
        with recording.opened():
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        error = end if end.code not in (None, 0) else None
    except BaseException as raised:  # noqa: BLE001 - the border to the user's program
        error = raised
    return (_ended(recording, request, name, error),), ()


def _trace_model(request: TraceRequest, new_recording: NewRecording) -> Traced:
    from torchstone.capture.run import run_backward
    from torchstone.models.load_model import describe_source, load
    from torchstone.models.prepare import check_inputs_match

    options = InputOptions(**request.options)
    model, inputs = load(request.target, inputs=request.inputs, options=options, device="cpu")
    check_inputs_match(model, inputs)
    name = describe_source(request.target)
    recording = new_recording(name)
    error: BaseException | None = None
    try:
        with recording.opened(), torch.set_grad_enabled(request.backward):
            output = model(*inputs.args, **inputs.kwargs)
            if request.backward:
                run_backward(output)
    except Exception as raised:  # noqa: BLE001 - a model may raise anything, and that is a result
        error = raised
    return (_ended(recording, request, name, error, model=name),), inputs.notes


def _ended(
    recording: Recording, request: TraceRequest, name: str, error: BaseException | None, model: str = ""
) -> TracedSource:
    ending = SourceEnding.PASSED if error is None else SourceEnding.FAILED
    detail = "" if error is None else " ".join(f"{type(error).__name__}: {error}".split())
    return _source(recording, request, name=name, ending=ending, detail=detail, model=model)


def _source(
    recording: Recording, request: TraceRequest, *, name: str, ending: SourceEnding, detail: str, model: str = ""
) -> TracedSource:
    return TracedSource(
        name=name,
        ending=ending,
        detail=detail,
        calls=recording.calls,
        configurations=recording.records(source=name, run=request.run, model=model),
    )


def main(path: str) -> int:
    """Do what the request in a file asks for; gives the exit code."""
    import msgspec

    request = msgspec.json.decode(Path(path).read_bytes(), type=TraceRequest)
    try:
        log = trace(request)
    except InputError as error:
        write_atomically(Path(request.log).with_name(REFUSAL), str(error).encode())
        return EXIT_BAD_INPUT
    try:
        save(Path(request.log), log)
    except OSError as error:
        reason = error.strerror or str(error)
        sys.stderr.write(
            f"torchstone: cannot write {request.log}: {reason}; make room, or set TMPDIR to another disk\n"
        )
        return EXIT_BAD_INPUT
    return EXIT_FINE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

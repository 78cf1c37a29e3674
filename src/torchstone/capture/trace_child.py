"""The process that a traced program runs in: records aten ops, and ttnn operations where ttnn is installed."""

import os
import platform
import runpy
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from torchstone import __version__
from torchstone.backends.ttnn.tracer import TtnnCalls
from torchstone.capture.chains import MOST_PATHS, ChainLog
from torchstone.capture.op_log import Recording
from torchstone.capture.trace_program import REFUSAL, TraceRequest
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE, InputError
from torchstone.foreign import end_soon, foreign_code
from torchstone.models.inputs import InputOptions
from torchstone.record.codec import save, write_atomically
from torchstone.record.config import OpLog, SourceEnding, TargetKind, TracedSource

_NO_TESTS = 5
_RAN = (0, 1)  # pytest: all passed, some failed


def trace(request: TraceRequest) -> OpLog:
    """Run the target and give what was seen."""
    recordings: list[Recording] = []
    ttnn = TtnnCalls(Path(request.ttnn)) if request.ttnn else None

    def new_recording(source: str) -> Recording:
        beside = nullcontext if ttnn is None else partial(ttnn.followed, source)
        chains = ChainLog() if request.chains else None
        recordings.append(Recording(looks=request.looks, beside=beside, chains=chains))
        return recordings[-1]

    run_target = {
        TargetKind.PYTEST: _trace_tests,
        TargetKind.SCRIPT: _trace_script,
        TargetKind.MODEL: _trace_model,
    }[request.kind]
    sources, notes = run_target(request, new_recording)
    skipped = sum(one.chains.skipped for one in recordings if one.chains is not None)
    if skipped:
        notes += (f"{skipped:,} chains were not recorded: at most {MOST_PATHS} of each length end at one call",)
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
        ttnn.tell_ending(source.name, source.ending.value)
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
            ending=SourceEnding(plugin.endings.get(name, SourceEnding.FAILED)),
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
    # a model may raise anything, and that is a result
    with foreign_code() as ran, recording.opened(), torch.set_grad_enabled(request.backward):
        output = model(*inputs.args, **inputs.kwargs)
        if request.backward:
            run_backward(output)
    return (_ended(recording, request, name, ran.error, model=name),), inputs.notes


def _ended(
    recording: Recording, request: TraceRequest, name: str, error: BaseException | None, model: str = ""
) -> TracedSource:
    ending = SourceEnding.PASSED if error is None else SourceEnding.FAILED
    detail = "" if error is None else " ".join(f"{type(error).__name__}: {error}".split())
    return _source(recording, request, name=name, ending=ending, detail=detail, model=model)


def _source(
    recording: Recording, request: TraceRequest, *, name: str, ending: SourceEnding, detail: str, model: str = ""
) -> TracedSource:
    chains = recording.chains
    return TracedSource(
        name=name,
        ending=ending,
        detail=detail,
        calls=recording.calls,
        configurations=recording.records(source=name, run=request.run, model=model),
        chains=() if chains is None else chains.records(source=name, run=request.run, model=model),
    )


def main(path: str, *, ends_process: bool = False) -> int:
    """Do what the request in a file asks for; gives the exit code, with which the process is then to end."""
    import msgspec

    try:
        request = msgspec.json.decode(Path(path).read_bytes(), type=TraceRequest)
    except OSError as error:
        sys.stderr.write(f"torchstone: cannot read {path}: {error.strerror or error}; run it again\n")
        return EXIT_BAD_INPUT
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
    if ends_process and request.kind is TargetKind.MODEL:  # the threads of a script are part of it
        end_soon(EXIT_FINE)
    return EXIT_FINE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], ends_process=True))

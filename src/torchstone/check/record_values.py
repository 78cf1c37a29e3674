"""A model that a pool of processes holds -> its trace, and the values that its units need, on disk."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from torchstone.check.plan import Plan
from torchstone.check.programs import CallProgram, program_of_call, values_to_record
from torchstone.check.settings import Folder
from torchstone.errors import InputError, ModelError, TorchstoneError, UnreadableFileError
from torchstone.record.codec import load, write_atomically
from torchstone.record.files import read_json
from torchstone.record.task import Ending, Limits, Task, TaskResult
from torchstone.record.trace import Trace
from torchstone.workers.executor import Executor

_OWN_ERROR = re.compile(
    r"^torchstone\.errors\.(?:CaptureError|Model\w*Error|InputError): (?P<message>[^\n]*)", re.MULTILINE
)
_SYSTEM_ERROR = re.compile(r"\w+Error: \[Errno \d+\] (?P<reason>[^\n]+)")  # a full disk, a missing permission
_PATIENCE = Limits(deadline_s=3600.0)


def captured_trace(pool: Executor, folder: Folder, entry: str, command: str) -> Trace:
    """The trace of the model that the pool holds; the trace of an interrupted run is used as it is.

    `entry` names the task that captures, as "package.module:function". It runs in a process that has loaded
    the model (`check.child.model.loaded_model`), with the path of the trace to write and the command for its
    provenance; its answer is {"failure": null or {"module", "error"}}.
    """
    if not folder.trace.is_file():
        payload = {"trace": str(folder.trace), "command": command}
        ended = _run(pool, Task(id="capture", entry=entry, payload=payload))
        failure = answer_of(ended, "capturing the model")["failure"]
        if failure is not None:
            refuse_failure(failure["module"], failure["error"])
    return load(folder.trace, Trace)


def refuse_failure(module: str, error: str) -> NoReturn:
    """Refuse a model whose own forward pass raises."""
    where = f" in {module}" if module else ""
    msg = f"the model itself fails on the CPU{where}: {error}; a check needs a model that runs"
    raise ModelError(msg)


def record_values(pool: Executor, folder: Folder, trace: Trace, found: Plan, *, weights: bool) -> dict[str, str]:
    """Record the values of all units; returns the rows whose arguments cannot be serialized, and why."""
    if not folder.recorded_marker.is_file():
        wanted = folder.work / "wanted.json"
        rows = {unit.row for unit in found.units.values()}
        write_atomically(wanted, json.dumps(wanted_values(trace, rows, weights=weights)).encode())
        payload = {"wanted": str(wanted), "folder": str(folder.values)}
        ended = _run(pool, Task(id="keep", entry="torchstone.check.child.recording:record_task", payload=payload))
        mark_recorded(folder, answer_of(ended, "running the model again")["unwritten"])
    return read_unserializable(folder)


def mark_recorded(folder: Folder, unwritten: Mapping[str, str]) -> None:
    """Say that all values are on disk."""
    write_atomically(folder.recorded_marker, json.dumps({"unwritten": unwritten}, sort_keys=True).encode())


def read_unserializable(folder: Folder) -> dict[str, str]:
    """The rows whose arguments have no written form, and why."""
    found = read_json(folder.recorded_marker)
    unwritten = found.get("unwritten") if isinstance(found, dict) else None
    if not isinstance(unwritten, dict):
        msg = f"{folder.recorded_marker} is damaged; drop --resume to begin again"
        raise UnreadableFileError(msg)
    return {str(row): str(why) for row, why in unwritten.items()}


def record_more(pool: Executor, folder: Folder, wanted: Mapping[str, object]) -> dict[str, str]:
    """Record further module calls; returns the rows whose arguments cannot be serialized, and why."""
    path = folder.work / "wanted_more.json"
    write_atomically(path, json.dumps(wanted).encode())
    payload = {"wanted": str(path), "folder": str(folder.values)}
    ended = _run(pool, Task(id="keep more", entry="torchstone.check.child.recording:record_task", payload=payload))
    unwritten: dict[str, str] = answer_of(ended, "running the model again")["unwritten"]
    return unwritten


def wanted_values(trace: Trace, rows: Collection[int], *, weights: bool) -> dict[str, Any]:
    """What a run of the model must keep of these module calls, as the child reads it."""
    programs = {row: program_of_call(trace, row) for row in sorted(rows)}
    return {
        "ops": [trace.ops.signatures[number].op for number in trace.ops.signature_of],
        "tensors": {str(op): places for op, places in values_to_record(programs).items()},
        "rows": {str(row): {"random": any(step.is_random for step in programs[row].steps)} for row in programs},
        "weights": _held(list(programs.values())) if weights else {},
    }


def _held(programs: Sequence[CallProgram]) -> dict[str, str]:
    return {
        external.name: external.parameter_path
        for program in programs
        for external in program.externals.values()
        if external.parameter_path is not None
    }


def _run(pool: Executor, task: Task) -> TaskResult:
    pool.submit(Task(id=task.id, entry=task.entry, payload=task.payload, limits=_PATIENCE))
    (ended,) = pool.results()
    return ended


def answer_of(ended: TaskResult, doing: str) -> Any:
    """The answer of a task that prepares a check; raises the error that says why there is none."""
    match ended.ending:
        case Ending.ANSWERED:
            return ended.answer
        case Ending.RAISED if "TraceMismatchError" in (ended.evidence.error or ""):
            words = (ended.evidence.error or "").partition(": ")[2]
            msg = f"the model does not call the same ops twice: {words}; a check needs one that does with the same seed"
            raise ModelError(msg)
        case Ending.RAISED if found := _SYSTEM_ERROR.match(ended.evidence.error or ""):
            msg = f"{doing} failed: {found['reason']}; run it again once that is resolved"
            raise InputError(msg)
        case Ending.RAISED if own := _OWN_ERROR.search(ended.evidence.traceback or ""):
            raise ModelError(own["message"])
        case Ending.RAISED:
            msg = f"{doing} raised {ended.evidence.error}\n{ended.evidence.traceback or ''}".strip()
            raise TorchstoneError(msg)
        case _:
            how = ended.evidence.signal or ended.evidence.error or ended.ending.value
            msg = f"{doing} on the CPU ended with {how}; try a smaller model, or --layers and --seq-len"
            raise ModelError(msg)

"""What a process left behind -> how its task ended."""

import signal

import msgspec

from torchstone.record.task import Ending, Evidence, TaskResult
from torchstone.workers.lane import Job, Lane, Message

_NO_MEMORY_LEFT = "std::bad_alloc"  # what C++ prints when it gives up for want of memory


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a lane's first process."""

    code: int | None  # negative: a signal; None: it could not be killed, or nobody is left to tell
    peak_bytes: int | None = None  # files and what was loaded before included
    memory_ran_out: bool = False  # the system has been killing for memory meanwhile
    note: str = ""


def exit_in_words(code: int | None) -> str:
    """How a process ended: was ended by SIGSEGV, left with exit code 3."""
    if code is None:
        return "ended without a trace"
    return f"was ended by {_name_of(-code)}" if code < 0 else f"left with exit code {code}"


def answered(lane: Lane, job: Job, message: Message) -> TaskResult:
    """The result of a task that gave an answer or raised."""
    if message.error is None:
        ending = Ending.ANSWERED
    else:
        ending = Ending.OUT_OF_MEMORY if message.out_of_memory else Ending.RAISED
    first = lane.done == 0  # a later one cannot be told from those before it: the peak is of all of them
    evidence = Evidence(
        error=message.error,
        traceback=message.traceback,
        last_output=lane.output.text(),
        output_bytes=lane.output.seen_bytes,
        peak_bytes=max(0, message.peak_bytes - lane.resident_before_bytes) if first else None,
    )
    answer = msgspec.json.decode(message.answer) if message.error is None else None
    return TaskResult(id=job.task.id, ending=ending, answer=answer, evidence=evidence, elapsed_s=message.elapsed_s)


def fallen(lane: Lane, job: Job, end: Exit, elapsed_s: float) -> TaskResult:
    """The result of a task whose process ended before it had answered."""
    output = lane.output.text()
    ending, error = _ending(lane, end, output)
    peak_bytes = None
    if end.peak_bytes is not None and lane.done == 0:
        peak_bytes = max(0, end.peak_bytes - lane.resident_before_bytes)
    evidence = Evidence(
        signal=_name_of(-end.code) if end.code is not None and end.code < 0 else None,
        exit_code=end.code if end.code is not None and end.code >= 0 else None,
        error=error,
        last_output=output,
        output_bytes=lane.output.seen_bytes,
        peak_bytes=peak_bytes,
    )
    return TaskResult(id=job.task.id, ending=ending, evidence=evidence, elapsed_s=elapsed_s)


def cancelled(job: Job) -> TaskResult:
    """The result of a task that was not run to its end because nobody wanted it any more."""
    return TaskResult(id=job.task.id, ending=Ending.CANCELLED)


def _ending(lane: Lane, end: Exit, output: str) -> tuple[Ending, str | None]:
    if lane.stopped_for is not None:
        return lane.stopped_for, lane.stopped_because
    if end.code is None:
        return Ending.CRASHED, end.note
    if end.code == -signal.SIGKILL and end.memory_ran_out:
        return Ending.OUT_OF_MEMORY, "the system killed it because memory ran out"
    if end.code == -signal.SIGABRT and _NO_MEMORY_LEFT in output:
        return Ending.OUT_OF_MEMORY, "it gave up because memory ran out"
    if end.code < 0:
        return Ending.CRASHED, f"it {exit_in_words(end.code)}"
    half = f" ({len(lane.unread)} bytes of an answer had come)" if lane.unread else ""
    error = f"it {exit_in_words(end.code)} and without an answer{half}"
    return (Ending.CRASHED if end.code else Ending.NO_ANSWER), error


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"

"""One process of tasks as seen from outside: its channel, its output, and how its tasks ended."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
from collections import deque
from dataclasses import dataclass

import msgspec

from torchstone.record.base import Record
from torchstone.record.task import Ending, Evidence, Limits, Task, TaskResult
from torchstone.workers.child import END_OF_TASK

# --- Output: the beginning and end of any amount of it, per task, in bounded memory ---


class OutputTail:
    """Keeps the first and the last bytes of a stream and counts all of them."""

    def __init__(self, kept_bytes: int) -> None:
        self._head_room = kept_bytes // 2
        self._tail_room = kept_bytes - self._head_room
        self._head = bytearray()
        self._tail = bytearray()
        self.seen_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.seen_bytes += len(data)
        missing = self._head_room - len(self._head)
        self._head += data[:missing]
        self._tail += data[missing:][-self._tail_room :] if self._tail_room else b""
        if len(self._tail) > 2 * self._tail_room:  # now and then, not at every line
            del self._tail[: -self._tail_room]

    def text(self) -> str:
        """What was kept, with a word on what was not."""
        tail = bytes(self._tail[-self._tail_room :]) if self._tail_room else b""
        left_out = self.seen_bytes - len(self._head) - len(tail)
        if not left_out:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        between = f"\n[... {left_out:,} bytes left out ...]\n"
        return self._head.decode("utf-8", "replace") + between + tail.decode("utf-8", "replace")


class TaskOutputs:
    """One stream of several tasks in a row, a mark after each -> what each of them printed."""

    def __init__(self, mark: bytes, kept_bytes: int) -> None:
        self._mark = mark
        self._kept_bytes = kept_bytes
        self._tails: deque[OutputTail] = deque()  # of the tasks without a result, in their order
        self._ended = 0  # how many of these have printed all they had to
        self._unowned = OutputTail(kept_bytes)  # what is printed while no task runs
        self._partial_mark = b""  # the beginning of a mark, perhaps

    @property
    def first(self) -> OutputTail:
        """What the first task has printed so far."""
        return self._tails[0] if self._tails else self._unowned

    @property
    def first_has_ended(self) -> bool:
        """Whether that is all of it."""
        return self._ended > 0

    def expect(self, kept_bytes: int) -> None:
        """One more task will print."""
        self._tails.append(OutputTail(kept_bytes))

    def drop_first(self) -> None:
        """The first task has its result."""
        self._tails.popleft()
        self._ended = max(0, self._ended - 1)
        self._unowned = OutputTail(self._kept_bytes)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        *ended, rest = (self._partial_mark + data).split(self._mark)
        for part in ended:
            self._printing().feed(part)
            self._ended = min(self._ended + 1, len(self._tails))
        cut = len(rest) - _overlap(rest, self._mark)
        self._printing().feed(rest[:cut])
        self._partial_mark = rest[cut:]

    def finish(self) -> None:
        """Nothing more will come: a partial mark is output."""
        self._printing().feed(self._partial_mark)
        self._partial_mark = b""

    def _printing(self) -> OutputTail:
        return self._tails[self._ended] if self._ended < len(self._tails) else self._unowned


def _overlap(data: bytes, mark: bytes) -> int:
    """How many of the last bytes are the beginning of a mark."""
    lengths = range(min(len(data), len(mark) - 1), 0, -1)
    return next((length for length in lengths if data.endswith(mark[:length])), 0)


# --- Lanes ---


_CHUNK_BYTES = 1 << 18
_MOST_READS = 16  # at the end, so that a process that escaped and goes on writing cannot hold us


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A task in the queue."""

    task: Task
    limits: Limits
    line: bytes  # the task as it goes over the channel
    alone: bool = False  # wants a process that has run nothing before
    exclusive: bool = False  # and no other task beside it: it ran out of time in company

    @classmethod
    def of(cls, task: Task, limits: Limits) -> "Job":
        """A task, ready to be sent; a payload that is not JSON fails here, in the process that made it."""
        body = {"entry": task.entry, "payload": task.payload}
        line = json.dumps(body, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        return cls(task=task, limits=task.limits or limits, line=line)


class Message(Record, frozen=True, kw_only=True):
    """A line that came over the channel."""

    ready: int | None = None  # its process id: it has been set up
    resident_bytes: int = 0  # all that it holds when ready
    own_bytes: int = 0  # the same without mapped files
    failed: str | None = None  # the step of its set-up that raised
    answer: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    traceback: str | None = None
    out_of_memory: bool = False
    elapsed_s: float = 0.0
    peak_bytes: int = 0


def read_message(line: bytes) -> Message | None:
    """A line of a process; None where it cannot be read."""
    try:
        return msgspec.json.decode(line, type=Message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Lane:
    """A process that runs the tasks it is given, one after the other."""

    def __init__(self, number: int, *, room: int, now_s: float) -> None:
        self.number = number
        self.started_s = now_s
        self.room = room  # tasks it may still be given
        self.jobs: deque[Job] = deque()  # given, not answered; the first one is running
        self.done = 0
        self.pid: int | None = None
        self.resident_before_bytes = 0
        self.own_before_bytes = 0
        self.ready = False
        self.began_s = 0.0  # when the running task began
        self.shown_s: float | None = None  # when it was asked to show where it hangs
        self.last_output_s: float | None = None  # when it last said something since
        self.last_output_bytes = 0  # that it had said by then
        self.killed_s: float | None = None
        self.stopped_for: Ending | None = None
        self.stopped_because = ""
        self.leaving = False  # it begins no other task: what it was given goes back to the queue
        self.members: dict[int, int] = {}  # processes of its session with their threads, when last looked
        self._outputs = TaskOutputs(END_OF_TASK, Limits().kept_output_bytes)
        self.unread = bytearray()
        self.outbox = bytearray()
        self.channel, self._far_channel = socket.socketpair()
        self.channel.settimeout(0)
        self.output_end, self._far_output_end = os.pipe()
        os.set_blocking(self.output_end, False)
        _widen(self.output_end)

    @property
    def far_descriptors(self) -> tuple[int, int]:
        """What the process itself gets: its channel and the end of the pipe it prints to."""
        return self._far_channel.fileno(), self._far_output_end

    @property
    def output(self) -> OutputTail:
        """What the running task has printed so far."""
        return self._outputs.first

    def let_go_of_far_ends(self) -> None:
        """The process has them now; kept here too, they would never close."""
        self._far_channel.close()
        os.close(self._far_output_end)
        self._far_output_end = -1

    def give(self, job: Job, now_s: float) -> None:
        """Send it a task."""
        self.room -= 1
        if job.alone:
            self.room = 0
        if not self.jobs:
            self.began_s = now_s
        self.jobs.append(job)
        self._outputs.expect(job.limits.kept_output_bytes)
        self.outbox += job.line
        self.send()

    def send(self) -> None:
        """Send as much as the channel takes; after the last task, hang up."""
        try:
            while self.outbox:
                del self.outbox[: self.channel.send(self.outbox)]
            if self.ready and self.room <= 0:
                self.channel.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:  # it ended; the zygote reports how
            self.outbox.clear()

    def ask_where_it_hangs(self, now_s: float) -> None:
        """From now on, what it says counts as an answer to that."""
        self.drain_output_of_first()
        self.shown_s, self.last_output_s, self.last_output_bytes = now_s, None, self.output.seen_bytes

    def finish_first(self, now_s: float) -> Job:
        """The running task has been answered: the next one, if any, is running now."""
        job = self.jobs.popleft()
        self.done += 1
        self.began_s = now_s
        self.shown_s = None
        self._outputs.drop_first()
        return job

    def read_lines(self) -> tuple[list[bytes], bool]:
        """The lines that have come since, and whether more may come."""
        try:
            data = self.channel.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return [], True
        except OSError:
            return [], False
        if b"\n" not in data:
            self.unread += data
            return [], bool(data)
        *lines, rest = (bytes(self.unread) + data).split(b"\n")
        self.unread = bytearray(rest)
        return lines, True

    def read_last_lines(self) -> list[bytes]:
        """After its end: all lines that it still had written."""
        found: list[bytes] = []
        size, more = -1, True
        while more and size != len(self.unread) + len(found):
            size = len(self.unread) + len(found)
            lines, more = self.read_lines()
            found += lines
        return found

    def read_output(self) -> int | None:
        """Take what it has printed since: how many bytes, 0 at the end, None for nothing just now."""
        try:
            data = os.read(self.output_end, _CHUNK_BYTES)
        except BlockingIOError:
            return None
        self._outputs.feed(data)
        return len(data)

    def drain_output(self) -> None:
        """At its end: take all that it has printed."""
        for _ in range(_MOST_READS):
            if not self.read_output():
                break
        self._outputs.finish()

    def drain_output_of_first(self) -> None:
        """Take what the running task has printed so far; once it has been answered, up to the mark that ends it."""
        for _ in range(_MOST_READS):
            if self._outputs.first_has_ended or not self.read_output():
                return

    def close(self) -> None:
        """Close this side's ends."""
        self.channel.close()
        os.close(self.output_end)
        if self._far_output_end >= 0:
            self.let_go_of_far_ends()


def _widen(pipe: int) -> None:
    """Let a flood through in larger pieces, where the system knows how."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # this user has too many wide pipes already
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _CHUNK_BYTES)


# --- Results: how a task ended, from what its process left behind ---


_NO_MEMORY_LEFT = "std::bad_alloc"  # what C++ prints when it gives up for want of memory


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a lane's first process."""

    code: int | None  # negative: a signal; None: it could not be killed, or the zygote is gone
    peak_bytes: int | None = None  # files and what was loaded before included
    memory_ran_out: bool = False  # the system has been killing for memory meanwhile
    note: str = ""

    @property
    def by_others(self) -> bool:
        """Whether something else may have ended it: the system for want of memory, a user, the zygote's end."""
        return self.code in (None, -signal.SIGKILL)


def describe_exit(code: int | None) -> str:
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
    first = lane.done == 0  # for a later one only the peak of all tasks so far is known
    evidence = Evidence(
        error=message.error,
        traceback=message.traceback,
        last_output=lane.output.text(),
        output_bytes=lane.output.seen_bytes,
        peak_bytes=max(0, message.peak_bytes - lane.resident_before_bytes) if first else None,
    )
    answer = msgspec.json.decode(message.answer) if message.error is None else None
    return TaskResult(id=job.task.id, ending=ending, answer=answer, evidence=evidence, elapsed_s=message.elapsed_s)


def result_of_exit(lane: Lane, job: Job, end: Exit, elapsed_s: float) -> TaskResult:
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
    """The result of a task that was not run to its end because it was cancelled."""
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
        return Ending.CRASHED, f"it {describe_exit(end.code)}"
    half = f" ({len(lane.unread)} bytes of an answer had come)" if lane.unread else ""
    error = f"it {describe_exit(end.code)} and without an answer{half}"
    return (Ending.CRASHED if end.code else Ending.NO_ANSWER), error


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"

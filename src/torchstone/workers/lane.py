"""One process of tasks as seen from outside: its channel, its output, and the tasks it was given."""

import contextlib
import fcntl
import json
import os
import socket
import sys
from collections import deque
from dataclasses import dataclass

import msgspec

from torchstone.record.base import Record
from torchstone.record.task import Ending, Limits, Task
from torchstone.workers.child import END_OF_TASK
from torchstone.workers.output_tail import OutputTail, TaskOutputs

_CHUNK_BYTES = 1 << 18
_MOST_READS = 16  # at the end, so that a process that escaped and goes on writing cannot hold us


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A task in the queue."""

    task: Task
    limits: Limits
    line: bytes  # the task as it goes over the channel
    alone: bool = False  # wants a process that has run nothing before

    @classmethod
    def of(cls, task: Task, limits: Limits) -> "Job":
        """A task, ready to be sent; a payload that is no JSON fails here and not far from home."""
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
        self.heard_s: float | None = None  # when it last said something since
        self.heard_bytes = 0  # that it had said by then
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
        except OSError:  # it ended; how, is told by whoever started it
            self.outbox.clear()

    def ask_where_it_hangs(self, now_s: float) -> None:
        """From now on, what it says counts as an answer to that."""
        self.drain_output_of_first()
        self.shown_s, self.heard_s, self.heard_bytes = now_s, None, self.output.seen_bytes

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

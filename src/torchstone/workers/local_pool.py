"""Tasks -> results on this machine: one process per task, at the price of a fork.

One loop, one thread. Everything that happens (an answer, output, the end of a process) wakes the loop by a descriptor;
deadlines and memory are looked at in between. Torch is never imported here.
"""

import contextlib
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import NoReturn, Self

from torchstone.errors import WorkerError
from torchstone.record.task import Ending, Environment, Limits, Task, TaskResult
from torchstone.workers.lane import (
    Exit,
    Job,
    Lane,
    Message,
    answered,
    cancelled,
    describe_exit,
    read_message,
    result_of_exit,
)
from torchstone.workers.launcher import Launcher, Report, launch
from torchstone.workers.limits import Watch, breach, end_of_patience, fair_share_bytes, has_shown, killed_for_memory

LOOK_S = 0.02  # between two looks at the memory of what runs
KILL_PATIENCE_S = 5.0  # a process that is still there so long after SIGKILL hangs inside the system
MOST_FAILED_STARTS = 3  # of processes that ended before they were ready
MOST_FAILED_FORKS = 7  # that the system refused; each time we wait twice as long, some 12 s together
RETRY_S = 0.1
TASKS_AHEAD = 8  # that a lane may be given before it is done with the first
USUAL_LIMITS = Limits()
_KIB = 1024


class LocalPool:
    """Runs tasks on this machine, `jobs` at once; use it as a context manager.

    With tasks_per_child above 1 a process runs several tasks in a row, which is quicker still. It is replaced after any
    fault, and a task that failed in a process with earlier tasks runs again alone: its result is always its own.
    """

    def __init__(
        self,
        environment: Environment,
        jobs: int = 2,
        limits: Limits = USUAL_LIMITS,
        *,
        tasks_per_child: int = 1,
        start_limit_s: float = 600.0,
    ) -> None:
        self._environment = environment
        self._jobs = jobs
        self._limits = limits
        self._tasks_per_child = tasks_per_child
        self._start_limit_s = start_limit_s
        self._queue: deque[Job] = deque()
        self._finished: deque[TaskResult] = deque()
        self._lanes: dict[int, Lane] = {}
        self._lanes_started = 0
        self._failed_starts = 0  # in a row
        self._start_again_s = 0.0
        self._deaths = 0  # of zygotes, since a task last ended
        self._memory_share_bytes: int | None = None
        self._kills_known = killed_for_memory()
        self._watch = Watch()
        self._selector = selectors.DefaultSelector()
        self._launcher = self._launch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def submit(self, task: Task) -> None:
        """Put a task into the queue; allowed while results are read."""
        self._queue.append(Job.of(task, self._limits))

    def results(self) -> Iterator[TaskResult]:
        """The results as they come, until nothing is pending. Come back soon: limits are watched in between."""
        while True:
            while self._finished:
                yield self._finished.popleft()
            if not self._queue and not any(lane.jobs for lane in self._lanes.values()):
                return
            self._step()

    def wait_until_ready(self) -> None:
        """Come back when the environment is set up; raises WorkerError where it cannot be."""
        while not self._launcher.ready:
            self._step()

    def cancel(self) -> None:
        """Drop what is queued and stop what runs; each is reported as cancelled."""
        self._finished.extend(cancelled(job) for job in self._queue)
        self._queue.clear()
        for lane in self._lanes.values():
            if lane.jobs:
                self._finished.extend(cancelled(job) for job in list(lane.jobs)[1:])
                lane.jobs = deque([lane.jobs[0]])
                self._stop(lane, Ending.CANCELLED, "it was cancelled")

    def close(self) -> None:
        """End every process that was started; nothing is left behind."""
        tidy = False
        try:
            tidy = self._launcher.close()
        finally:
            for lane in list(self._lanes.values()):
                if not tidy:
                    self._kill_from_here(lane)
                self._forget(lane)
            self._selector.close()

    def _launch(self) -> Launcher:
        launcher = launch(self._environment)
        self._launched_s = time.monotonic()
        self._selector.register(launcher.control, selectors.EVENT_READ, lambda _: self._hear(launcher))
        self._selector.register(launcher.words_end, selectors.EVENT_READ, lambda _: self._hear_words(launcher))
        return launcher

    def _step(self) -> None:
        """Hand out work, wait for the next event, and see to the limits."""
        if self._launcher.ready:
            self._hand_out()
            self._start_lanes()
        running = any(lane.jobs for lane in self._lanes.values())
        for key, events in self._selector.select(LOOK_S if running else 1.0):
            handle: Callable[[int], None] = key.data
            still = self._selector.get_map().get(key.fd)
            if still is not None and still.data is handle:  # an event before it may have ended this one
                handle(events)
        now_s = time.monotonic()
        waiting = [lane.started_s for lane in self._lanes.values() if not lane.ready]
        since_s = min(waiting, default=now_s) if self._launcher.ready else self._launched_s
        if now_s - since_s > self._start_limit_s:
            self._give_up(f"was not ready after {self._start_limit_s:g} s")
        self._enforce_limits(now_s)

    def _start_lanes(self) -> None:
        """Keep as many idle processes ready as are likely to be needed next."""
        now_s = time.monotonic()
        if now_s < self._start_again_s:
            return
        living = [lane for lane in self._lanes.values() if lane.room > 0 or lane.jobs]
        idle = sum(1 for lane in living if not lane.jobs)
        wanted = min(max(1, len(self._queue)), self._jobs) - idle
        most = self._jobs + max(1, self._jobs // 2) - len(living)
        for _ in range(min(wanted, most)):
            self._lanes_started += 1
            lane = Lane(self._lanes_started, room=self._tasks_per_child, now_s=now_s)
            self._lanes[lane.number] = lane
            self._selector.register(lane.channel, selectors.EVENT_READ, lambda events, it=lane: self._serve(it, events))
            self._selector.register(lane.output_end, selectors.EVENT_READ, lambda _, it=lane: self._hear_output(it))
            self._launcher.start(lane)

    def _hand_out(self) -> None:
        now_s = time.monotonic()
        busy = sum(1 for lane in self._lanes.values() if lane.jobs)
        ahead = min(TASKS_AHEAD, 1 + len(self._queue) // self._jobs)
        for lane in self._lanes.values():
            if not lane.ready or lane.stopped_for or lane.leaving or (not lane.jobs and busy >= self._jobs):
                continue
            before = len(lane.jobs)
            while lane.room > 0 and len(lane.jobs) < ahead:
                place = self._next_place(busy)
                if place is None or (self._queue[place].alone and lane.room < self._tasks_per_child):
                    break
                job = self._queue[place]
                del self._queue[place]
                lane.give(job, now_s)
            busy += bool(lane.jobs) and not before
            if lane.outbox:
                self._selector.modify(lane.channel, selectors.EVENT_READ | selectors.EVENT_WRITE, self._data_of(lane))

    def _next_place(self, busy: int) -> int | None:
        """Where in the queue the next job is; one that wants the pool for itself waits until nothing else is left."""
        if any(job.exclusive for lane in self._lanes.values() for job in lane.jobs):
            return None
        shared = next((place for place, job in enumerate(self._queue) if not job.exclusive), None)
        if shared is not None:
            return shared
        return 0 if self._queue and not busy else None

    def _data_of(self, lane: Lane) -> object:
        return self._selector.get_key(lane.channel).data

    def _serve(self, lane: Lane, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            lane.send()
            if not lane.outbox:
                self._selector.modify(lane.channel, selectors.EVENT_READ, self._data_of(lane))
        if events & selectors.EVENT_READ and not self._hear_lane(lane):
            self._selector.unregister(lane.channel)

    def _hear_lane(self, lane: Lane) -> bool:
        """Take the messages that have come from a lane; whether more may come."""
        lines, more = lane.read_lines()
        self._take_lines(lane, lines)
        return more

    def _take_lines(self, lane: Lane, lines: list[bytes]) -> None:
        for line in lines:
            if lane.stopped_for:  # too late
                return
            message = read_message(line)
            if message is None:
                self._stop(lane, Ending.NO_ANSWER, f"its answer cannot be read: {line[:80]!r}")
            else:
                self._take(lane, message)

    def _take(self, lane: Lane, message: Message) -> None:
        if message.failed is not None:
            lane.drain_output()
            self._give_up(f"failed at {message.failed}: {message.error}", lane)
        if message.ready is not None:
            lane.ready, lane.pid = True, message.ready
            lane.resident_before_bytes, lane.own_before_bytes = message.resident_bytes, message.own_bytes
            self._failed_starts = 0
        elif lane.jobs:
            lane.drain_output_of_first()
            self._finished.append(answered(lane, lane.jobs[0], message))
            self._deaths = 0
            job = lane.finish_first(time.monotonic())
            lane.leaving = message.error is not None
            allowed = self._memory_of(job)
            if allowed is not None and message.peak_bytes - lane.resident_before_bytes > allowed // 2:
                lane.room = 0  # the next task should not pay for what this one left
            lane.send()

    def _hear_output(self, lane: Lane) -> None:
        if lane.read_output() == 0:
            self._selector.unregister(lane.output_end)

    def _hear_words(self, launcher: Launcher) -> None:
        if launcher.read_words() == 0:
            self._selector.unregister(launcher.words_end)

    def _hear(self, launcher: Launcher) -> None:
        reports, alive = launcher.reports()
        for report in reports:
            self._apply_report(report)
        if not alive:
            self._replace_launcher()

    def _apply_report(self, report: Report) -> None:
        if report.ready is not None:
            self._launcher.ready = True
            self._launcher.threads = report.threads
            self._memory_share_bytes = fair_share_bytes(self._jobs)
        elif report.failed is not None:
            self._give_up(f"failed at {report.failed}: {report.error}")
        elif report.started is not None:
            self._lanes[report.started].pid = report.pid
        elif report.not_started is not None:
            self._forget(self._lanes[report.not_started])
            self._start_again_s = time.monotonic() + RETRY_S * 2**self._failed_starts
            self._count_failed_start(MOST_FAILED_FORKS, f"cannot start a process: {report.error}")
        elif report.exited is not None and report.exited in self._lanes:
            lane = self._lanes[report.exited]
            self._take_lines(lane, lane.read_last_lines())
            ran_out = report.code == -signal.SIGKILL and self._memory_ran_out()
            self._end(lane, Exit(code=report.code, peak_bytes=report.peak_kib * _KIB, memory_ran_out=ran_out))
            if not lane.ready:
                self._count_failed_start(MOST_FAILED_STARTS, describe_exit(report.code), lane)

    def _end(self, lane: Lane, end: Exit) -> None:
        """A lane is over: its running task falls, the others go back to the queue."""
        lane.drain_output()
        if lane.jobs and not lane.leaving:
            job = lane.jobs.popleft()
            late = lane.stopped_for in (Ending.TIMED_OUT, Ending.TOO_BUSY) and job.limits.retries_timeout
            killed = end.by_others and lane.stopped_for is None
            if (late or killed) and not job.exclusive:  # a task beside it, or another program, may be the cause
                self._queue.append(replace(job, alone=True, exclusive=True))
            elif lane.done and lane.stopped_for is not Ending.CANCELLED:  # an earlier task may be the cause
                lane.jobs.appendleft(replace(job, alone=True))
            else:
                self._finished.append(result_of_exit(lane, job, end, time.monotonic() - lane.began_s))
        self._queue.extendleft(reversed(lane.jobs))
        self._forget(lane)

    def _count_failed_start(self, most: int, what: str, lane: Lane | None = None) -> None:
        self._failed_starts += 1
        if self._failed_starts >= most:
            self._give_up(what, lane)

    def _forget(self, lane: Lane) -> None:
        for source in (lane.channel, lane.output_end):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(source)
        lane.close()
        self._lanes.pop(lane.number, None)

    def _replace_launcher(self) -> None:
        """The zygote died: so did what it started; begin anew."""
        launcher = self._launcher
        launcher.read_words()
        how = launcher.how_it_ended()
        self._deaths = 0 if any(lane.jobs for lane in self._lanes.values()) else self._deaths + 1
        failed = not launcher.ready and how != describe_exit(-signal.SIGKILL)  # killed by another process: try again
        if failed or self._deaths >= MOST_FAILED_STARTS:
            self._give_up(how)
        for lane in list(self._lanes.values()):
            self._kill_from_here(lane)
            self._take_lines(lane, lane.read_last_lines())
            self._end(lane, Exit(code=None, note=f"the process that had started it {how}"))
        self._selector.unregister(launcher.control)
        with contextlib.suppress(KeyError):
            self._selector.unregister(launcher.words_end)
        launcher.close()
        self._launcher = self._launch()

    def _enforce_limits(self, now_s: float) -> None:
        running = [lane for lane in self._lanes.values() if lane.jobs]
        self._watch.take_census(running, now_s)
        for lane in running:
            if lane.killed_s is not None:
                if now_s - lane.killed_s > KILL_PATIENCE_S:
                    self._end_by_force(lane)
            elif ending := end_of_patience(lane, self._watch.usage(lane), now_s):
                self._end_overdue(lane, ending, now_s)
            elif found := breach(lane, self._memory_of(lane.jobs[0])):
                self._stop(lane, *found)

    def _end_by_force(self, lane: Lane) -> None:
        """A killed lane is still there: it hangs inside the system, or the zygote hangs; do without both."""
        self._kill_from_here(lane)
        self._end(lane, Exit(code=None))
        for other in self._lanes.values():
            other.leaving = True
        self._launcher.end()

    def _end_overdue(self, lane: Lane, ending: Ending, now_s: float) -> None:
        if lane.shown_s is None:
            lane.ask_where_it_hangs(now_s)
            self._launcher.show(lane)
        elif has_shown(lane, now_s):
            limits, cpu_s = lane.jobs[0].limits, self._watch.usage(lane).cpu_s
            if ending is Ending.TOO_BUSY:
                because = f"it was given {cpu_s:.3g} s of CPU time in {limits.longest_s:g} s: the machine is too busy"
            else:
                threads = self._launcher.threads
                forked = f"; it was forked from a process with {threads} threads, which may be why"
                hint = forked if threads > 1 else ""
                because = f"it had not answered after {limits.deadline_s:g} s ({cpu_s:.1f} s of CPU time){hint}"
            self._stop(lane, ending, because)

    def _stop(self, lane: Lane, ending: Ending, because: str) -> None:
        lane.stopped_for, lane.stopped_because = ending, because
        lane.killed_s = time.monotonic()
        self._launcher.kill(lane)

    def _memory_of(self, job: Job) -> int | None:
        return job.limits.memory_bytes or self._memory_share_bytes

    def _memory_ran_out(self) -> bool:
        """Whether the system has killed for memory since this was last asked."""
        before, self._kills_known = self._kills_known, killed_for_memory()
        return self._kills_known is not None and before is not None and self._kills_known > before

    def _kill_from_here(self, lane: Lane) -> None:
        if lane.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(lane.pid, signal.SIGKILL)

    def _give_up(self, what: str, lane: Lane | None = None) -> NoReturn:
        printed = (lane.output if lane and lane.output.seen_bytes else self._launcher.setup_output).text().strip()
        last = "\n".join(printed.splitlines()[-15:])
        said = f"; it said:\n{last}" if last else ""
        msg = f"the worker process of {self._environment.python} {what}{said}"
        raise WorkerError(msg)

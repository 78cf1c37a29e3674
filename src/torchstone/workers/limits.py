"""Limits of a running process: memory read from /proc, deadlines, and whether it has to be stopped."""

import contextlib
import os
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from torchstone.record.task import Ending, Limits
from torchstone.units import show_bytes
from torchstone.workers.lane import Lane

# --- Memory and threads, read from /proc without touching the processes ---
# Where there is no /proc every answer is None: unknown.


_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")  # in a container: its own
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KIB = 1024
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_NS_PER_S = 1e9
_SHARE_OF_FREE = 0.8  # the rest is left to everybody else
_LEAST_SHARE_BYTES = 256 * _KIB * _KIB


class Member(NamedTuple):
    """A process of a task."""

    threads: int
    cpu_s: float  # its own
    reaped_cpu_s: float  # of its children that have ended


def resident_bytes(pid: int) -> int | None:
    """All memory of a process, files it has mapped and what it shares included: quick to ask for."""
    try:
        descriptor = os.open(f"/proc/{pid}/statm", os.O_RDONLY)
    except OSError:
        return None
    try:
        return int(os.read(descriptor, 128).split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):  # it is just ending
        return None
    finally:
        os.close(descriptor)


def own_bytes(pid: int) -> int | None:
    """The memory of a process that is not backed by files, so that the system cannot drop it."""
    fields = _fields(_PROC / str(pid) / "status", ("RssAnon", "RssShmem"))
    return sum(fields.values()) if fields else None


def private_bytes(pid: int) -> int | None:
    """The memory that a process shares with no other: takes milliseconds to ask for."""
    fields = _fields(_PROC / str(pid) / "smaps_rollup", ("Private_Clean", "Private_Dirty"))
    return sum(fields.values()) if fields else None


def census(sessions: Collection[int]) -> dict[int, dict[int, Member]]:
    """The processes of each session."""
    found: dict[int, dict[int, Member]] = {session: {} for session in sessions}
    for pid, session, member in _processes():
        if session in found:
            found[session][pid] = member
    return found


def tree_bytes(session: int, members: Iterable[int]) -> int | None:
    """What a session's first process holds and what the others hold alone."""
    first = own_bytes(session)
    if first is None:
        return None
    others = (private_bytes(pid) for pid in members if pid != session)
    return first + sum(held for held in others if held is not None)


def free_bytes() -> int | None:
    """What can be used before the machine, or the container around us, has nothing left."""
    known = [free for free in (_free_of_machine(), _free_of_container()) if free is not None]
    return min(known, default=None)


def fair_share_bytes(jobs: int) -> int | None:
    """What each of this number of concurrent tasks may use of the memory that is free now."""
    free = free_bytes()
    return None if free is None else max(_LEAST_SHARE_BYTES, int(free * _SHARE_OF_FREE / jobs))


def killed_for_memory() -> int | None:
    """How many processes the system has killed because memory ran out: of the container around us, or of all."""
    inside = _counts(_GROUPS / "memory.events").get("oom_kill")
    return _counts(_PROC / "vmstat").get("oom_kill") if inside is None else inside


def _free_of_machine() -> int | None:
    return _fields(_PROC / "meminfo", ("MemAvailable",)).get("MemAvailable")


def _free_of_container() -> int | None:
    """What its limit leaves; files that were read count as used by it, and go as soon as the room is needed."""
    for most, used, prefix in (
        ("memory.max", "memory.current", ""),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_"),
    ):
        try:
            free = int((_GROUPS / most).read_text()) - int((_GROUPS / used).read_text())
        except (OSError, ValueError):  # no such group, or "max": no limit
            continue
        counts = _counts((_GROUPS / most).with_name("memory.stat"))
        return free + sum(counts.get(f"{prefix}{kind}", 0) for kind in ("active_file", "inactive_file"))
    return None


def _counts(path: Path) -> dict[str, int]:
    """The lines of a file that are a name and a number."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    split = (line.split() for line in lines)
    return {fields[0]: int(fields[1]) for fields in split if len(fields) == 2 and fields[1].isdigit()}  # noqa: PLR2004 - a pair


def _fields(path: Path, names: tuple[str, ...]) -> dict[str, int]:
    """The named fields of a /proc file, in bytes."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    split = (line.split() for line in lines)
    return {fields[0][:-1]: int(fields[1]) * _KIB for fields in split if fields and fields[0][:-1] in names}


def _processes() -> Iterator[tuple[int, int, Member]]:
    for name in os.listdir(_PROC) if _PROC.is_dir() else ():  # noqa: PTH208 - names only, many times a minute
        if name.isdigit():
            try:
                fields = (_PROC / name / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            own, reaped = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
            yield int(name), int(fields[3]), Member(int(fields[17]), own / _TICKS_PER_S, reaped / _TICKS_PER_S)


# --- Enforcement: whether a lane has to be stopped, and why ---


MOST_THREADS = max(1_000, 16 * (os.cpu_count() or 1))  # of all processes of a task together
SHOWING_S = 1.0  # what a hanging task gets at most to print where it hangs
_LOOKS = 2  # that must find too much memory
QUIET_S = 0.05  # after its last words it has said all
CENSUS_S = 0.25


class Usage:
    """The CPU time of a running task, and how long it waited for a CPU that others had; threads and children count.

    Waiting is what the scheduler counts (/proc/PID/task/*/schedstat): a thread that sleeps does not wait, so a task
    that hangs without using the CPU is not excused by a busy machine.
    """

    def __init__(self) -> None:
        self._cpu_s: dict[int, float] = {}  # as last seen, also of those that have ended
        self._waited_s: dict[tuple[int, int], float] = {}
        self._most_cpu_s = 0.0
        self._before = (0.0, 0.0)
        self._knows_waiting = False

    def look(self, members: Mapping[int, Member]) -> None:
        """See what the processes of the task have used so far."""
        for pid, member in members.items():
            self._cpu_s[pid] = member.cpu_s
            for thread, waited_s in _waited_s(pid).items():
                self._waited_s[pid, thread] = waited_s
                self._knows_waiting = True
        living_s = sum(member.cpu_s + member.reaped_cpu_s for member in members.values())
        self._most_cpu_s = max(self._most_cpu_s, living_s, sum(self._cpu_s.values()))

    def restart(self) -> None:
        """A task begins: what was used before does not count."""
        self._before = (self._most_cpu_s, sum(self._waited_s.values()))

    @property
    def cpu_s(self) -> float:
        """CPU time of the task."""
        return self._most_cpu_s - self._before[0]

    def fair_s(self, wall_s: float) -> float:
        """How long the task would have run on a machine of its own, from how long it has run on this one."""
        if self._knows_waiting:
            waited_s = sum(self._waited_s.values()) - self._before[1]
        else:  # not Linux: the load says how many shared each CPU
            waited_s = wall_s * (1 - 1 / max(1.0, _load_per_cpu()))
        return max(self.cpu_s, wall_s - waited_s)


def _waited_s(pid: int) -> dict[int, float]:
    found = {}
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names only, many times a minute
            times = Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes().split()
            found[int(thread)] = int(times[1]) / _NS_PER_S
    except (OSError, IndexError):  # it ended meanwhile, or this system does not count
        pass
    return found


def _load_per_cpu() -> float:
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return 1.0


class Watch:
    """Looks at running lanes, often and cheaply."""

    def __init__(self) -> None:
        self._next_census_s = 0.0
        self._began: dict[int, float] = {}  # lane -> when the task began that its usage is of
        self._usage: dict[int, Usage] = {}

    def take_census(self, lanes: list[Lane], now_s: float) -> None:
        """Now and then, and whenever a task begins, see which processes each lane has started and what they use."""
        new = [lane for lane in lanes if self._began.get(lane.number) != lane.began_s]
        if now_s < self._next_census_s and not new:
            return
        self._next_census_s = now_s + CENSUS_S
        found = census([lane.pid for lane in lanes if lane.pid])
        for lane in lanes:
            members = found.get(lane.pid or 0, {})
            lane.members = {pid: member.threads for pid, member in members.items()}
            usage = self._usage.setdefault(lane.number, Usage())
            usage.look(members)
            if lane in new:
                usage.restart()
                self._began[lane.number] = lane.began_s
        self._forget_all_but({lane.number for lane in lanes})

    def usage(self, lane: Lane) -> Usage:
        """What the running task of a lane has used."""
        return self._usage.setdefault(lane.number, Usage())

    def _forget_all_but(self, living: set[int]) -> None:
        for number in set(self._usage) - living:
            del self._usage[number]
            self._began.pop(number, None)


def wait_within(process: "subprocess.Popen[bytes]", limits: Limits) -> Ending | None:
    """Wait for a process that leads a session; None when it ended, else why it must be stopped, as for a task."""
    usage, began_s = Usage(), time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=CENSUS_S)
            return None
        usage.look(census([process.pid])[process.pid])
        wall_s = time.monotonic() - began_s
        if ending := overdue(limits, usage, wall_s):
            return ending


def end_of_patience(lane: Lane, usage: Usage, now_s: float) -> Ending | None:
    """Why the running task must be stopped; None: wait on."""
    return overdue(lane.jobs[0].limits, usage, now_s - lane.began_s)


def overdue(limits: Limits, usage: Usage, wall_s: float) -> Ending | None:
    """Timed out when a process had its time on a machine of its own, too busy when it did not get it in much longer."""
    if wall_s <= limits.deadline_s:
        return None
    if usage.fair_s(wall_s) > limits.deadline_s:
        return Ending.TIMED_OUT
    return Ending.TOO_BUSY if wall_s > limits.longest_s else None


def has_shown(lane: Lane, now_s: float) -> bool:
    """Whether a task that was asked for its stack has printed it, or will not."""
    assert lane.shown_s is not None  # noqa: S101 - it was asked
    if lane.output.seen_bytes > lane.last_output_bytes:
        lane.last_output_bytes, lane.last_output_s = lane.output.seen_bytes, now_s
    finished = lane.last_output_s is not None and now_s - lane.last_output_s > QUIET_S
    return finished or now_s - lane.shown_s > SHOWING_S


def breach(lane: Lane, memory_bytes: int | None) -> tuple[Ending, str] | None:
    """Why a lane must be stopped before its deadline, if it must."""
    threads = sum(lane.members.values())
    if threads > MOST_THREADS:
        return (
            Ending.CRASHED,
            f"it had {threads:,} threads in {len(lane.members):,} processes; {MOST_THREADS:,} are allowed",
        )
    if memory_bytes is None or lane.pid is None:
        return None
    resident = sum(resident_bytes(pid) or 0 for pid in {lane.pid, *lane.members})
    if resident <= memory_bytes + lane.resident_before_bytes:
        return None  # the quick look says more than there is: it counts mapped files, and what processes share
    own = 0
    for _ in range(_LOOKS):  # memory that moves from one process to another between two readings is counted twice
        own = tree_bytes(lane.pid, lane.members) or 0
        if own <= memory_bytes + lane.own_before_bytes:
            return None
    used = show_bytes(own - lane.own_before_bytes)
    return Ending.OUT_OF_MEMORY, f"it used {used} and was allowed {show_bytes(memory_bytes)}"

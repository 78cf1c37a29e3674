"""Limits of a running process: memory read from /proc, deadlines, and whether it has to be stopped."""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from torchstone.record.task import Ending
from torchstone.units import show_bytes
from torchstone.workers.lane import Lane

# --- Memory and threads, read from /proc without touching the processes ---
# Where there is no /proc every answer is None: unknown.


_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")  # in a container: its own
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KIB = 1024
_SHARE_OF_FREE = 0.8  # the rest is left to everybody else
_LEAST_SHARE_BYTES = 256 * _KIB * _KIB


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


def census(sessions: Collection[int]) -> dict[int, dict[int, int]]:
    """The processes of each session, with the number of threads of each."""
    found: dict[int, dict[int, int]] = {session: {} for session in sessions}
    for pid, session, threads in _processes():
        if session in found:
            found[session][pid] = threads
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


def _processes() -> Iterator[tuple[int, int, int]]:
    for name in os.listdir(_PROC) if _PROC.is_dir() else ():  # noqa: PTH208 - names only, many times a minute
        if name.isdigit():
            try:
                fields = (_PROC / name / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            yield int(name), int(fields[3]), int(fields[17])


# --- Enforcement: whether a lane has to be stopped, and why ---


MOST_THREADS = max(1_000, 16 * (os.cpu_count() or 1))  # of all processes of a task together
SHOWING_S = 1.0  # what a hanging task gets at most to print where it hangs
QUIET_S = 0.05  # after its last words it has said all
CENSUS_S = 0.25


class Watch:
    """Looks at running lanes, often and cheaply."""

    def __init__(self) -> None:
        self._next_census_s = 0.0

    def take_census(self, lanes: list[Lane], now_s: float) -> None:
        """Now and then, see which processes each lane has started."""
        if now_s < self._next_census_s:
            return
        self._next_census_s = now_s + CENSUS_S
        found = census([lane.pid for lane in lanes if lane.pid])
        for lane in lanes:
            lane.members = found.get(lane.pid or 0, {})


def overdue_s(lane: Lane, now_s: float) -> float:
    """How long ago the running task's deadline was; negative: not yet."""
    return now_s - lane.began_s - lane.jobs[0].limits.deadline_s


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
    resident = resident_bytes(lane.pid)
    alone = len(lane.members) <= 1
    if alone and (resident is None or resident <= memory_bytes + lane.resident_before_bytes):
        return None  # the quick look says more than there is: it counts mapped files
    own = tree_bytes(lane.pid, lane.members)
    if own is None or own <= memory_bytes + lane.own_before_bytes:
        return None
    used = show_bytes(own - lane.own_before_bytes)
    return Ending.OUT_OF_MEMORY, f"it used {used} and was allowed {show_bytes(memory_bytes)}"

"""Process ids -> what they hold, and what the machine has left; from /proc, without touching the processes.

Where there is no /proc every answer is None: not known.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

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
    """The memory of a process that is no file: nobody can take it away from it."""
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
    """What each of so many tasks at once may use of what is free now."""
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
    return {words[0]: int(words[1]) for words in split if len(words) == 2 and words[1].isdigit()}  # noqa: PLR2004 - a pair


def _fields(path: Path, names: tuple[str, ...]) -> dict[str, int]:
    """The named fields of a /proc file, in bytes."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    split = (line.split() for line in lines)
    return {words[0][:-1]: int(words[1]) * _KIB for words in split if words and words[0][:-1] in names}


def _processes() -> Iterator[tuple[int, int, int]]:
    for name in os.listdir(_PROC) if _PROC.is_dir() else ():  # noqa: PTH208 - names only, many times a minute
        if name.isdigit():
            try:
                fields = (_PROC / name / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            yield int(name), int(fields[3]), int(fields[17])

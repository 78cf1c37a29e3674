"""What keeps a process inside its bounds. Runs beside the task: needs the standard library only.

Linux has calls for all of it. Elsewhere the ones that are missing do nothing: a process group can still be killed, but
a process whose parent was killed lives until it reads from its closed channel.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform == "linux"
_LINE_BUFFERED = 1
_libc = ctypes.CDLL(None, use_errno=True)  # what every process has loaded already


def die_with_parent(parent: int) -> None:
    """Be killed when the process that started this one ends, however it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(1)


def outlive_parent() -> None:
    """Take back die_with_parent: from now on the end of the parent is seen on a channel, and tidied up after."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that they can be found and killed."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def prefer_as_oom_victim() -> None:
    """When the machine runs out of memory, this process is the one to be killed."""
    if _LINUX:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib would be imported for this
            file.write("1000")


def limit_writable_memory() -> None:
    """Refuse to grow by more than the machine has: a last bound if no parent watches; also ends bombs of threads.

    The address space is no measure (torch and its friends reserve hundreds of gigabytes), writable private memory is.
    """
    if not _LINUX:
        return
    page_bytes = resource.getpagesize()
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - pathlib would be imported for this
        now_bytes = int(file.read().split()[5]) * page_bytes
    most_bytes = now_bytes + os.sysconf("SC_PHYS_PAGES") * page_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or most_bytes < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))


def count_processes() -> int | None:
    """How many threads this user has on the machine; None where that cannot be known."""
    if not _LINUX:
        return None
    user, found = os.getuid(), 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                found += len(os.listdir(f"/proc/{entry.name}/task")) if entry.stat().st_uid == user else 0  # noqa: PTH208 - no pathlib
    return found


def limit_processes(most: int) -> None:
    """Refuse to start more once the user has this number of threads; the system does not hold root to it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_NPROC, (most, hard))


def show_output_line_by_line() -> None:
    """Let C code write its lines as they come: what is still in a buffer dies with the process."""
    if _LINUX:
        stdout = ctypes.c_void_p.in_dll(_libc, "stdout")
        _libc.setvbuf(stdout, None, _LINE_BUFFERED, ctypes.c_size_t(0))


def flush_output() -> None:
    """Write out what Python and C code still hold back."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    _libc.fflush(None)


def held_bytes() -> tuple[int, int]:
    """The memory in use right now: all of it, and without mapped files."""
    if not _LINUX:
        return peak_bytes(), peak_bytes()
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - pathlib would be imported for this
        _, resident, shared, *_ = file.read().split()
    page_bytes = resource.getpagesize()
    return int(resident) * page_bytes, (int(resident) - int(shared)) * page_bytes


def peak_bytes() -> int:
    """The most memory that was ever in use."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most * 1024 if _LINUX else most


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        _libc.prctl(option, value, 0, 0, 0)

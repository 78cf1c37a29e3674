"""Temporary folders, and files that replace others as a whole; neither stays behind, even where a process is killed.

Each is locked by the process that writes it. A process id would not do instead: the system gives it to another process
later, and containers that share a folder have ids of their own. Needs the standard library only.
"""

import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory, gettempdir, mkdtemp
from typing import IO

_PREFIX = "torchstone-tmp-"
_UNFINISHED = re.compile(r"\.[1-9][0-9]{0,9}-\w{8}\.part")  # the name of a file until it is complete

_tidied: set[str] = set()  # the folders that this process has looked through


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A folder that is removed when the block ends or, where this process is killed, by the next one that needs one."""
    if os.name != "posix":
        with TemporaryDirectory(prefix=f"{_PREFIX}{purpose}-") as unlocked:
            yield Path(unlocked)
        return
    if gettempdir() not in _tidied:
        _tidied.add(gettempdir())
        _remove_abandoned(Path(gettempdir()))
    folder, lock = _new_temporary(purpose)
    try:
        yield folder
    finally:
        remove_tree(folder)
        os.close(lock)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as the system lets it; what stays is removed by the next command.

    The second try meets what a process that is being killed still wrote, or is without the failure of the first.
    """
    for _ in range(2):
        with suppress(OSError):  # of a folder that can be opened but not looked at, rmtree does not ignore it
            shutil.rmtree(folder, ignore_errors=True)


def _new_temporary(purpose: str) -> tuple[Path, int]:
    """A new folder with the descriptor that has its lock; another process may remove it before it is locked."""
    import fcntl

    while True:
        folder = Path(mkdtemp(prefix=f"{_PREFIX}{purpose}-"))
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.exists():  # no other process makes a folder of this name
            return folder, descriptor
        os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    """Remove the temporary folders of this user that no process has locked."""
    with suppress(OSError):
        for entry in list(os.scandir(parent)):
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):  # it is in use, another user's, or was removed meanwhile
                    _remove_if_abandoned(Path(entry.path))


def _remove_if_abandoned(path: Path) -> None:
    import fcntl

    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where it is in use, or there are no locks
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):
            path.unlink()
        elif found.st_uid == os.getuid():
            remove_tree(path)
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path, *, below: bool = False) -> None:
    """Remove the files of a folder, and of those below it, that a process which is gone did not complete."""
    if os.name != "posix":
        return
    with suppress(OSError):  # where that is not possible, nothing can be written either, and that is reported
        for left in list(folder.rglob(".*.part") if below else folder.iterdir()):
            if _UNFINISHED.fullmatch(left.name):
                with suppress(OSError):  # it is in use, or was removed meanwhile
                    _remove_if_abandoned(left)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when the block ends; where the block fails, the old one stays.

    A device or pipe, such as /dev/stdout, is written to instead: it cannot be replaced.
    """
    try:
        if _is_stream(path):
            with _opened_stream(path) as stream:
                yield stream
            return
        with _new_unfinished(path.parent) as file:
            unfinished, complete = Path(file.name), False
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                unfinished.chmod(0o666 & ~_umask())
                unfinished.replace(path)
                complete = True
            finally:
                if not complete:
                    with suppress(OSError):  # what went wrong first is reported
                        unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error  # a full disk names no file


def _new_unfinished(folder: Path) -> IO[bytes]:
    """A new file that is locked while it is open; another process may remove it, or its folder, before that."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        file = NamedTemporaryFile(dir=folder, prefix=f".{os.getpid()}-", suffix=".part", delete=False)  # noqa: SIM115 - the caller closes it
        if _is_ours(file):
            return file
        file.close()


def _is_ours(file: IO[bytes]) -> bool:
    """Lock a new file; False where it was removed before."""
    if os.name == "posix":
        import fcntl

        with suppress(OSError):  # a file system without locks
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            return os.fstat(file.fileno()).st_nlink > 0
    return True


def _is_stream(path: Path) -> bool:
    """Whether a path leads to a device, pipe or socket, or, by a link of /dev or /proc, to an open file."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # what is wrong is found again when the file is written
        return False
    if os.name != "posix":
        return False
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        real = os.path.realpath(path.parent)
        return path.is_symlink() and (real == "/dev" or real.startswith("/proc/"))
    return True


def _opened_stream(path: Path) -> IO[bytes]:
    """A device or pipe to write to; a pipe that no process reads from is an error, as it would wait for ever."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

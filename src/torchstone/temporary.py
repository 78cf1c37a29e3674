"""Temporary folders that nothing leaves behind, not even a process that is killed. Needs the standard library only."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir, mkdtemp

_PREFIX = "torchstone-tmp-"

_tidied: set[str] = set()  # the folders that this process has looked through


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A folder that is removed when the block ends, or, where this process is killed, by the next one that needs one.

    It is locked meanwhile: a process id would not do, as containers that share the folder have ids of their own.
    """
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
        for _ in range(2):  # what a process that is being killed may still write
            shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


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


def _remove_if_abandoned(folder: Path) -> None:
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where it is in use, or there are no locks
        if os.fstat(descriptor).st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)

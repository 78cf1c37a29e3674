"""One command at a time writes to a folder; the system releases the lock when its process ends, however it ends.

The lock is on the folder itself, so it leaves no file behind. Within a process it may be taken again: a command that is
a part of another one writes to the same folder.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from torchstone.errors import InputError
from torchstone.temporary import remove_unfinished

SHORT_WRITE_S = 60.0  # that a command which only writes its files waits for another one
_RETRY_S = 0.05

_held: set[Path] = set()


@contextmanager
def exclusive(folder: Path, *, wait_s: float = 0.0, way_out: str = "choose another --dir") -> Iterator[None]:
    """Create the folder where it is missing, and keep other commands out of it.

    Unfinished files that a killed process left in it are removed; where the block fails, those of its workers are, too.
    A folder that is created here and stays empty is removed again. Raises InputError where another command writes
    there, after `wait_s`, or where it cannot be opened.
    """
    place = Path(os.path.realpath(folder))  # resolve() fails with an error of its own where links go in a circle
    if place in _held:
        with _tidied(place):
            yield
        return
    created: list[Path] = []
    try:
        created += [one for one in (place, *place.parents) if not one.exists()]
        lock = _acquired(place, time.monotonic() + wait_s)
    except OSError as error:
        _remove_empty(created)
        msg = f"cannot write to {folder}: {error.strerror or error}; {way_out}"
        raise InputError(msg) from error
    if lock is None:
        msg = f"another torchstone command is writing to {folder}; wait for it, or {way_out}"
        raise InputError(msg)
    _held.add(place)
    try:
        remove_unfinished(place)
        with _tidied(place):
            yield
    finally:
        _held.discard(place)
        _remove_empty(created)
        os.close(lock)


@contextmanager
def _tidied(place: Path) -> Iterator[None]:
    """Where the block fails, remove what its workers had not finished: they ended with it."""
    with ExitStack() as unless_done:
        unless_done.callback(remove_unfinished, place, below=True)
        yield
        unless_done.pop_all()


def _acquired(place: Path, until_s: float) -> int | None:
    """The descriptor that has the lock; None where another process has it until the time is over."""
    if os.name != "posix":  # files are replaced as a whole there, too, but two commands are not kept apart
        place.mkdir(parents=True, exist_ok=True)
        return os.open(os.devnull, os.O_RDONLY)
    while True:
        place.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        locked = _locked(descriptor)
        if locked and _is_same(descriptor, place):
            return descriptor
        os.close(descriptor)
        if not locked:  # else the folder was removed, and created again, by the command that had the lock
            if time.monotonic() >= until_s:
                return None
            time.sleep(_RETRY_S)


def _locked(descriptor: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _is_same(descriptor: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), place.stat())
    except FileNotFoundError:
        return False


def _remove_empty(folders: list[Path]) -> None:
    with suppress(OSError):  # not empty, or already removed
        for one in folders:
            one.rmdir()

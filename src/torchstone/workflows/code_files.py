"""The files that a model's code was made from: its capture answers again while all of them are as they were.

While the code runs, an audit hook sees each file that it opens; the modules that it imports are files, too. What no
file shows (the environment, the working directory) is part of the key of a capture. Code that asks the network is not
kept.
"""

import os
import stat
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import FrameType

from torchstone.record.base import Record

_MOST_FILES = 5_000
_MOST_HASHED_BYTES = 16 << 20  # of one file; a larger one is known by its size and time
_ABSENT, _FOLDER = -1, -2  # in place of a size
_NETWORK = "socket.connect"
_LISTS = ("os.listdir", "os.scandir")
_FROZEN, _IMPORT_SYSTEM = "<frozen ", "<frozen importlib"
_OWN = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_VERSIONED = ("torch", "transformers", "numpy", "torchstone")  # their versions are in the key
_SYSTEM = ("/proc/", "/sys/", "/dev/")
_OF_A_TERMINAL = (  # variables that differ from window to window, and that no model depends on
    "PWD", "OLDPWD", "SHLVL", "_", "COLUMNS", "LINES", "TERM", "WINDOWID", "SSH_", "XDG_", "TERM_", "VTE_", "DBUS_",
    "TMUX", "STY", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "PYTEST_", "TORCHSTONE_",
)  # fmt: skip
_watching: "list[Watched]" = []
_hooks: list[bool] = []  # an audit hook cannot be taken away again


class FileState(Record, frozen=True, kw_only=True):
    """A file or folder as code saw it: by its content, or by size and time where it is installed or large."""

    path: str
    digest: str = ""  # of the content of a file, of the names in a folder
    size: int = _ABSENT
    mtime_ns: int = 0

    def holds(self) -> bool:
        """Whether it is as it was; what was not there is still not there."""
        now = _state(self.path)
        return (now.size, now.digest) == (self.size, self.digest) and (bool(self.digest) or now == self)


class Watched:
    """What code opened while it ran."""

    def __init__(self) -> None:
        self.opened: set[str] = set()
        self.asks_the_network = False

    def files(self) -> tuple[FileState, ...] | None:
        """The state of each file that was read; None where not all that the code depends on is in files."""
        paths = {tracked for path in (*self.opened, *_modules()) if (tracked := _tracked(path)) is not None}
        return None if self.asks_the_network or len(paths) > _MOST_FILES else tuple(map(_state, sorted(paths)))


@contextmanager
def watched_code() -> Iterator[Watched]:
    """Note the files that are opened while the block runs."""
    if not _hooks:
        _hooks.append(True)
        sys.addaudithook(_note)
    watched = Watched()
    _watching.append(watched)
    try:
        yield watched
    finally:
        _watching.remove(watched)


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if not _watching:
        return
    if event == _NETWORK:
        for one in _watching:
            one.asks_the_network = True
    elif event == "import":
        for one in _watching:  # one that is not there today may be there tomorrow
            one.opened.add(os.path.abspath(f"{str(arguments[0]).partition('.')[0]}.py"))  # noqa: PTH100 - as below
    elif (event == "open" or (event in _LISTS and _is_asked_by_code())) and isinstance(arguments[0], str | os.PathLike):
        path = os.path.abspath(os.fspath(arguments[0]))  # noqa: PTH100 - resolving it would follow links
        for one in _watching:
            one.opened.add(str(path))


def _is_asked_by_code() -> bool:
    """Whether code of the user lists a folder, itself or through the standard library, and not the import system."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - what the hook was called for
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith((_IMPORT_SYSTEM, *_places("purelib", "platlib"), _OWN)):
            return False
        if not file.startswith((_FROZEN, *_places("stdlib", "platstdlib"))):
            return True
        frame = frame.f_back
    return False


def _modules() -> Iterator[str]:
    """The files of all modules in memory: code may use one that was imported before it ran."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str):
            yield os.path.abspath(path)  # noqa: PTH100 - as above


def _tracked(path: str) -> str | None:
    """The file to keep an eye on for one that was read; None for what a version or the system stands for.

    An installed package is known by its first file, which an installer always writes.
    """
    installed = next((place for place in _places("purelib", "platlib") if path.startswith(place)), None)
    if installed is not None:
        package = path[len(installed) :].partition(os.sep)[0]
        first = os.path.join(installed, package, "__init__.py")  # noqa: PTH118 - as above
        return None if package in _VERSIONED or package.startswith("_") else first
    system = (*_SYSTEM, *_places("stdlib", "platstdlib"), _OWN)
    return None if path.endswith(".pyc") or path.startswith(system) else path


def _state(path: str) -> FileState:
    with suppress(OSError, ValueError):  # ValueError: a null byte in the name
        found = os.stat(path)  # noqa: PTH116 - as above
        if stat.S_ISDIR(found.st_mode):
            names = repr(sorted(os.listdir(path))).encode()  # noqa: PTH208 - as above
            return FileState(path=path, size=_FOLDER, digest=sha256(names).hexdigest())
        installed = path.startswith(_places("purelib", "platlib"))
        by_content = not installed and found.st_size <= _MOST_HASHED_BYTES and stat.S_ISREG(found.st_mode)
        digest = sha256(Path(path).read_bytes()).hexdigest() if by_content else ""
        return FileState(path=path, size=found.st_size, mtime_ns=found.st_mtime_ns, digest=digest)
    return FileState(path=path)  # it is not there: it was looked for, or was temporary


@cache
def _places(*names: str) -> tuple[str, ...]:
    return tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in names)


def surroundings() -> str:
    """What code can see beside files: the working directory and the variables of the environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_A_TERMINAL)}
    return sha256(repr((str(Path.cwd()), sorted(kept.items()))).encode()).hexdigest()

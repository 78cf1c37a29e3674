"""Run a script with the environment variables that make the runtime log, and save everything it prints."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from torchstone.errors import InputError
from torchstone.memory.dialects.tt_lines import read_line, strip_line
from torchstone.record.base import Record

WANTED = {
    "TTMLIR_RUNTIME_LOGGER_LEVEL": "DEBUG",  # op lines
    "TT_RUNTIME_MEMORY_LOG_LEVEL": "any",  # readings before each op and after the last
    "TTXLA_LOGGER_LEVEL": "DEBUG",  # module dumps: names of weights
    "XLA_HLO_DEBUG": "1",  # module paths in locations
    "PYTHONUNBUFFERED": "1",  # the script's own lines in their true place
}
UNWANTED = (
    "TTMLIR_RUNTIME_LOGGER_FILE",
    "TTMLIR_RUNTIME_LOGGER_TYPES",
    "TTXLA_LOGGER_FILE",
)  # hide lines from the pipe
_DUMP_BEGIN, _DUMP_END = b"| MLIR Module ", b"END OF MLIR MODULE"
_SIGNALLED = 128


class ScriptRun(Record, frozen=True, kw_only=True):
    """How a script ended."""

    exit_code: int  # as a shell would show it
    log: Path
    size_bytes: int
    problem: str = ""  # why there is no log; the script ran to its end all the same


def logging_environment(current: Mapping[str, str]) -> dict[str, str]:
    """The environment that makes the runtime log everything to the pipe."""
    kept = {name: value for name, value in current.items() if name not in UNWANTED}
    return kept | WANTED


def require_script(script: Path) -> None:
    """Raise InputError where there is no such file."""
    if not script.is_file():
        msg = f"there is no script {script}; give the path of a Python file"
        raise InputError(msg)


def run_script(script: Path, arguments: Sequence[str], *, log: Path, show_log: bool = False) -> ScriptRun:
    """Run a Python script, show its output as it comes, and save everything to the log.

    Lines of the runtime go only to the log unless show_log is set. Ctrl-C reaches the script; its output is saved. The
    script always runs to its end: a log that cannot be written (a full disk) is given up, and its space with it.
    """
    require_script(script)
    command = [sys.executable, str(script), *arguments]
    environment = logging_environment(os.environ)
    with (
        _survive_interrupts(),
        _LogFile(log) as file,
        subprocess.Popen(  # noqa: S603 - the user's own script
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
        ) as child,
    ):
        screen = _Screen(show_log=show_log)
        for line in child.stdout or ():
            file.write(line)
            screen.show(line)
        code = child.wait()
    exit_code = code if code >= 0 else _SIGNALLED - code
    return ScriptRun(exit_code=exit_code, log=log, size_bytes=file.size_bytes, problem=file.problem)


class _LogFile:
    """The log of a script; a failure to write it ends the log, not the script."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self.size_bytes = 0
        self.problem = ""

    def __enter__(self) -> "_LogFile":
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("wb", buffering=0)
        except OSError as error:
            self._give_up(error)
        return self

    def write(self, line: bytes) -> None:
        """Save a line, if the log can still be written."""
        if self._file is None:
            return
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[self._file.write(rest) :]
            self.size_bytes += len(line)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.problem = f"the log {self._path} could not be written: {error.strerror or error}"
        self.size_bytes = 0
        self._close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def __exit__(self, *_: object) -> None:
        self._close()


@contextmanager
def _survive_interrupts() -> Iterator[None]:
    """Ctrl-C goes to the script, which shares our terminal; this process stays to save the output."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Screen:
    """The part of the script's output that is shown while it runs."""

    def __init__(self, *, show_log: bool) -> None:
        self._show_log = show_log
        self._in_dump = False
        # The command's own output has no control characters; that of the user's program keeps its colours.
        self._stream: BinaryIO | None = getattr(sys.stdout.buffer, "as_it_is", sys.stdout.buffer)

    def show(self, line: bytes) -> None:
        """Show a line unless it is the runtime's."""
        self._in_dump = self._in_dump or _DUMP_BEGIN in line
        hidden = self._in_dump or read_line(strip_line(line.rstrip(b"\n")).text) is not None
        self._in_dump = self._in_dump and _DUMP_END not in line
        if self._stream is None or not (self._show_log or not hidden):
            return
        try:
            self._stream.write(line)
            self._stream.flush()
        except OSError:
            self._stream = None  # whoever read it is gone (`| head`); the script goes on

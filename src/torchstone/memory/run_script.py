"""Run a script with the environment variables that make the runtime log, and save everything it prints."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

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


def logging_environment(current: Mapping[str, str]) -> dict[str, str]:
    """The environment that makes the runtime log everything to the pipe."""
    kept = {name: value for name, value in current.items() if name not in UNWANTED}
    return kept | WANTED


def run_script(script: Path, arguments: Sequence[str], *, log: Path, show_log: bool = False) -> ScriptRun:
    """Run a Python script, show its output as it comes, and save everything to the log.

    Lines of the runtime go only to the log unless show_log is set. Ctrl-C reaches the script; its output is saved.
    """
    if not script.is_file():
        msg = f"there is no script {script}; give the path of a Python file"
        raise InputError(msg)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(script), *arguments]
    environment = logging_environment(os.environ)
    with (
        _survive_interrupts(),
        log.open("wb") as file,
        subprocess.Popen(  # noqa: S603 - the user's own script
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
        ) as child,
    ):
        screen = _Screen(show_log=show_log)
        for line in child.stdout or ():
            file.write(line)
            screen.show(line)
        code = child.wait()
    return ScriptRun(exit_code=code if code >= 0 else _SIGNALLED - code, log=log, size_bytes=log.stat().st_size)


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
        self._stream = sys.stdout.buffer

    def show(self, line: bytes) -> None:
        """Show a line unless it is the runtime's."""
        self._in_dump = self._in_dump or _DUMP_BEGIN in line
        hidden = self._in_dump or read_line(strip_line(line.rstrip(b"\n")).text) is not None
        self._in_dump = self._in_dump and _DUMP_END not in line
        if self._show_log or not hidden:
            self._stream.write(line)
            self._stream.flush()

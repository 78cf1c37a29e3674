"""What the memory commands share: how a log is named, read with progress, and written."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchstone.cli.options import Session

if TYPE_CHECKING:
    from torchstone.memory.folder import MemoryFolder
    from torchstone.record.memory import MemoryTimeline

F = TypeVar("F", bound=Callable[..., Any])
_BETWEEN_S = 0.2
_QUIET_FOR_S = 1.0


def log_options(function: F) -> F:
    """Add --rank and --dialect."""
    for option in (
        click.option("--dialect", default="", metavar="NAME", help="The log format; found from the log when left out."),
        click.option("--rank", default="", metavar="R,D", help="One process of a multi-host log, such as 1,0."),
    ):
        function = option(function)
    return function


def folder_options(function: F) -> F:
    """Add --dir and --name."""
    for option in (
        click.option("--name", default="", help="The report's name; from that of the log or script when left out."),
        click.option(
            "--dir",
            "directory",
            type=click.Path(path_type=Path, file_okay=False),
            help="Write here instead of ~/.ttmem/reports/NAME ($TTMEM_HOME moves it).",
        ),
    ):
        function = option(function)
    return function


class ReadingProgress:
    """Bytes read so far, on stderr, for logs that take longer than a second."""

    def __init__(self, session: Session, source: str) -> None:
        path = Path(source)
        self._size_bytes = path.stat().st_size if path.is_file() else 0
        self._shown = not session.quiet and sys.stderr.isatty() and "CI" not in os.environ
        self._began = self._last = time.monotonic()
        self._drawn = False

    def __call__(self, done_bytes: int) -> None:
        """Show how far the reading is."""
        now = time.monotonic()
        if not self._shown or now - self._began < _QUIET_FOR_S or now - self._last < _BETWEEN_S:
            return
        self._last, self._drawn = now, True
        percent = f"{100 * done_bytes / self._size_bytes:3.0f}%" if self._size_bytes else ""
        speed = done_bytes / (now - self._began) / 1e6
        click.echo(f"\r\x1b[2Kreading the log {percent} {speed:.0f} MB/s", err=True, nl=False)

    def clear(self) -> None:
        """Take the line away again."""
        if self._drawn:
            click.echo("\r\x1b[2K", err=True, nl=False)


def read_timeline(session: Session, source: str, *, rank: str = "", dialect: str = "") -> "MemoryTimeline":
    """Open a log or a report, with progress, and warn on stderr about what is missing."""
    from torchstone.memory.folder import open_timeline

    progress = ReadingProgress(session, source)
    try:
        timeline = open_timeline(source, rank=rank, dialect=dialect, progress=progress)
    finally:
        progress.clear()
    return timeline


def warn(session: Session, timeline: "MemoryTimeline") -> None:
    """What a reader should know before trusting the numbers, on stderr."""
    from torchstone.memory.diagnosis import diagnose

    if not session.quiet:
        for note in diagnose(timeline):
            click.echo(f"warning: {note}", err=True)


def write_documents(session: Session, folder: "MemoryFolder", timeline: "MemoryTimeline") -> None:
    """Write the JSON documents and say so."""
    from torchstone.errors import InputError
    from torchstone.memory.folder import write_folder

    try:
        write_folder(folder, timeline)
    except OSError as error:
        msg = f"cannot write to {folder.path}: {error.strerror or error}; choose another --dir"
        raise InputError(msg) from error
    for path in (folder.memory, folder.operations, folder.registry):
        tell_written(session, path)


def tell_written(session: Session, path: Path) -> None:
    """Name a file and its size on stderr."""
    from torchstone.units import show_bytes

    if not session.quiet:
        click.echo(f"wrote {path} ({show_bytes(path.stat().st_size)})", err=True)


def hint(session: Session, text: str) -> None:
    """Say what to do next, on stderr."""
    if not session.quiet:
        click.echo(text, err=True)

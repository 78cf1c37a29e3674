"""What a command leaves in the folder given with --dir."""

from pathlib import Path

from torchstone.cli.options import Session
from torchstone.cli.progress import TerminalProgress
from torchstone.record.base import Record
from torchstone.record.trace import Trace
from torchstone.workflows import result_folder


def write_trace(folder: Path, trace: Trace, session: Session) -> None:
    """Write a trace, its unique modules and the report, and say what was written and what comes next."""
    result_folder.write_trace(folder, trace, TerminalProgress(session))


def write_result(path: Path, result: Record, session: Session) -> None:
    """Write one document into the folder given with --dir, and the report of all that is there."""
    result_folder.write_result(path, result, TerminalProgress(session))

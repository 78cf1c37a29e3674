"""Report folders for tests."""

from pathlib import Path

from torchstone.record import codec
from torchstone.record.trace import Trace
from torchstone.report.render import write_report
from torchstone.report.section import TRACE_FILE


def folder_of(trace: Trace, path: Path) -> Path:
    """A folder that holds one trace, as `inspect --dir` leaves it."""
    codec.save(path / TRACE_FILE, trace)
    return path


def page_of(trace: Trace, path: Path, *, source: bool = True) -> Path:
    """The rendered page of one trace."""
    return write_report(folder_of(trace, path), source=source)

"""What a command leaves in the folder given with --dir."""

from pathlib import Path

import click

from torchstone.cli.model_options import TRACE_FILE
from torchstone.cli.options import Session
from torchstone.errors import InputError
from torchstone.record.base import Record
from torchstone.record.codec import save
from torchstone.record.trace import Trace
from torchstone.record.unique import unique_modules
from torchstone.units import show_bytes

UNIQUE_FILE = "unique_modules.json"


def write_trace(folder: Path, trace: Trace, session: Session) -> None:
    """Write a trace, its unique modules and the report, and say what was written and what comes next."""
    from torchstone.report.render import write_report

    try:
        save(folder / TRACE_FILE, trace)
        save(folder / UNIQUE_FILE, unique_modules(trace))
        page = write_report(folder)
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}; choose another --dir"
        raise InputError(msg) from error
    if session.quiet:
        return
    for path in (folder / TRACE_FILE, folder / UNIQUE_FILE, page):
        click.echo(f"wrote {path} ({show_bytes(path.stat().st_size)})", err=True)
    click.echo(f"next: torchstone serve {folder}", err=True)


def write_result(path: Path, result: Record, session: Session) -> None:
    """Write one document into the folder given with --dir, and the report of all that is there."""
    from torchstone.report.render import write_report

    try:
        save(path, result)
        page = write_report(path.parent)
    except OSError as error:
        msg = f"cannot write to {path.parent}: {error.strerror or error}; choose another --dir"
        raise InputError(msg) from error
    if not session.quiet:
        click.echo(f"wrote {path} and {page}", err=True)

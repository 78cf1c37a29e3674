"""Results -> the folder given with --dir: documents, and one report of all of them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from torchstone.errors import InputError
from torchstone.record.base import Document
from torchstone.record.codec import save
from torchstone.record.folder_lock import SHORT_WRITE_S, exclusive
from torchstone.record.trace import Trace
from torchstone.record.unique import UNIQUE_FILE, unique_modules
from torchstone.units import show_bytes
from torchstone.workflows.model_source import TRACE_FILE
from torchstone.workflows.progress import SILENT, Progress

COST_FILE = "cost.json"
MAPPING_FILE = "mapping.json"
NO_DOCUMENTS: Mapping[str, Document] = {}


def write_trace(
    folder: Path, trace: Trace, progress: Progress = SILENT, *, documents: Mapping[str, Document] = NO_DOCUMENTS
) -> None:
    """Write a trace, its unique modules, other documents by file name, and the report; note the files and their sizes.

    Files of the same names are replaced, others stay. Raises InputError for a folder that cannot be written.
    """
    _write(folder, {**documents, TRACE_FILE: trace, UNIQUE_FILE: unique_modules(trace)})
    for name in (TRACE_FILE, UNIQUE_FILE, "report.html"):
        path = folder / name
        progress.note(f"wrote {path} ({show_bytes(path.stat().st_size)})")
    progress.note(f"next: torchstone serve {quote(str(folder))}")


def write_result(path: Path, result: Document, progress: Progress = SILENT) -> None:
    """Write one document into its folder, and the report of all documents there.

    Raises InputError for a folder that cannot be written.
    """
    page = _write(path.parent, {path.name: result})
    progress.note(f"wrote {path} and {page}")


def _write(folder: Path, documents: Mapping[str, Document]) -> Path:
    from torchstone.report.render import write_report

    with exclusive(folder, wait_s=SHORT_WRITE_S), writing_to(folder):
        for name, document in documents.items():
            save(folder / name, document)
        return write_report(folder)


@contextmanager
def writing_to(path: Path, option: str = "--dir") -> Iterator[None]:
    """Turn an OSError of the operating system into an InputError that names the path and the option behind it."""
    try:
        yield
    except OSError as error:
        msg = f"cannot write to {path}: {error.strerror or error}; choose another {option}"
        raise InputError(msg) from error

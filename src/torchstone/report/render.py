"""The table of formats."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from torchstone.record.codec import write_atomically
from torchstone.report.assemble import Report, assemble
from torchstone.report.listing import TWIN_KIND, TWIN_VERSION
from torchstone.report.page import render_page
from torchstone.report.registry import SECTIONS
from torchstone.report.section import ReportFolder
from torchstone.report.spreadsheet import render_csv

REPORT_SCHEMA = f"torchstone/{TWIN_KIND}/{TWIN_VERSION}"
PAGE_FILE = "report.html"
TWIN_FILE = "report.json"


def render_twin(report: Report) -> bytes:
    """The report as one JSON document."""
    return msgspec.json.format(msgspec.json.encode(twin_document(report)), indent=1) + b"\n"


def twin_document(report: Report) -> dict[str, Any]:
    """The report as plain JSON values: each section under its name."""
    return {
        "schema": REPORT_SCHEMA,
        "title": report.title,
        "created": report.created,
        "failed": report.failed,
        "sections": {view.name: view.document for view in report.sections},
    }


def _page_file(report: Report) -> Mapping[str, bytes]:
    return {PAGE_FILE: render_page(report)}


def _twin_file(report: Report) -> Mapping[str, bytes]:
    return {TWIN_FILE: render_twin(report)}


FORMATS: Mapping[str, Callable[[Report], Mapping[str, bytes]]] = {
    "json": _twin_file,
    "html": _page_file,
    "csv": render_csv,
}
USUAL = ("json", "html")


def write_report(folder: Path, *, source: bool = True, formats: Sequence[str] = USUAL) -> Path:
    """Render whatever the folder holds into report.html, with report.json beside it; gives the page's path."""
    report = assemble(ReportFolder(folder, source=source), SECTIONS)
    files = {name: content for format_name in formats for name, content in FORMATS[format_name](report).items()}
    for name, content in files.items():
        write_atomically(folder / name, content)
    return folder / PAGE_FILE

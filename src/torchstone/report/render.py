"""The table of formats."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from torchstone.record.codec import write_atomically
from torchstone.report.assemble import Report, assemble
from torchstone.report.page import render_page
from torchstone.report.registry import SECTIONS
from torchstone.report.section import ReportFolder

REPORT_SCHEMA = "torchstone/report/1"
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


FORMATS: Mapping[str, Callable[[Report], bytes]] = {"html": render_page, "json": render_twin}


def write_report(folder: Path, *, source: bool = True) -> Path:
    """Render whatever the folder holds into report.html, with report.json beside it; gives the page's path."""
    report = assemble(ReportFolder(folder, source=source), SECTIONS)
    write_atomically(folder / TWIN_FILE, render_twin(report))
    write_atomically(folder / PAGE_FILE, render_page(report))
    return folder / PAGE_FILE

"""The sections of the report in the order of its tabs (a new one is one row), and the output formats."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from torchstone.record.codec import write_atomically
from torchstone.report.index_page import TWIN_KIND, TWIN_VERSION
from torchstone.report.page import Report, assemble, render_page
from torchstone.report.section import TRACE_FILE, ReportFolder, Section
from torchstone.report.sections import (
    check,
    check_comparison,
    cost,
    cost_sweep,
    graph,
    memory_comparison,
    memory_inputs,
    memory_padding,
    memory_peaks,
    memory_timeline,
    modules,
    operators,
    overview,
    port,
    reference,
    sweep,
    sweep_vectors,
)
from torchstone.report.spreadsheet import render_csv
from torchstone.report.view import memory

# --- Sections, in the order of the page's tabs: a new section is one row here ---


SECTIONS: tuple[Section, ...] = (
    Section(name=overview.NAME, files=(TRACE_FILE,), build=overview.build),
    Section(name=modules.NAME, files=(TRACE_FILE,), build=modules.build),
    Section(name=operators.NAME, files=(TRACE_FILE,), build=operators.build),
    Section(name=graph.NAME, files=(TRACE_FILE,), build=graph.build),
    Section(name=cost.NAME, files=(TRACE_FILE, cost.FILE), build=cost.build),
    Section(name=cost_sweep.NAME, files=(cost_sweep.FILE,), build=cost_sweep.build),
    Section(name=check.NAME, files=(TRACE_FILE, check.FILE), build=check.build),
    Section(name=check_comparison.NAME, files=(check_comparison.FILE,), build=check_comparison.build),
    Section(name=reference.NAME, files=(TRACE_FILE, *reference.FILES), build=reference.build),
    Section(name=port.NAME, files=(TRACE_FILE, port.FILE), build=port.build),
    Section(name=sweep.NAME, files=(sweep.FILE,), build=sweep.build),
    Section(name=sweep_vectors.NAME, files=(sweep.FILE,), build=sweep_vectors.build),
    Section(name=memory_timeline.NAME, files=memory.FILES, build=memory_timeline.build),
    Section(name=memory_peaks.NAME, files=memory.FILES, build=memory_peaks.build),
    Section(name=memory_padding.NAME, files=memory.FILES, build=memory_padding.build),
    Section(name=memory_inputs.NAME, files=memory.FILES, build=memory_inputs.build),
    Section(name=memory_comparison.NAME, files=memory_comparison.FILES, build=memory_comparison.build),
)


# --- Output formats ---


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

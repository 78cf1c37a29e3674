"""The sections of the report in the order of its tabs (a new one is one row), and the output formats."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import msgspec

from torchstone.record.base import Document
from torchstone.record.codec import load, write_atomically
from torchstone.record.reference import GoldenData
from torchstone.record.unique import UNIQUE_FILE, UniqueModules
from torchstone.report.page import REPORT, Report, assemble, render_page
from torchstone.report.section import TRACE_FILE, ReportFolder, Section, SectionView

# --- Sections, in the order of the page's tabs: a new section is one row here ---


def _section(name: str, files: tuple[str, ...], module: str = "") -> Section:
    """A section whose module in report/sections is imported only when its files are there."""

    def build(folder: ReportFolder) -> SectionView | None:
        build_view: Callable[[ReportFolder], SectionView | None] = section_module(module or name).build
        return build_view(folder)

    return Section(name=name, files=files, build=build)


def section_module(name: str) -> ModuleType:
    """A module of report/sections."""
    return import_module(f"torchstone.report.sections.{name}")


MEMORY_FILES = ("*_timeline.json.gz",)
SECTIONS: tuple[Section, ...] = (
    _section("overview", (TRACE_FILE,)),
    _section("analysis", ("analysis.json",)),
    _section("diff", ("diff.json",)),
    _section("panes", ("diff.json",)),
    _section("modules", (TRACE_FILE,)),
    _section("operators", (TRACE_FILE,)),
    _section("source", (TRACE_FILE,)),
    _section("graph", (TRACE_FILE,)),
    _section("cost", (TRACE_FILE, "cost.json")),
    _section("cost_sweep", ("cost_sweep.json",)),
    _section("check", (TRACE_FILE, "check.json")),
    _section("tenstorrent", (TRACE_FILE, "mapping.json")),
    _section("backends", ("check_comparison.json",), "check_comparison"),
    _section("reference", (TRACE_FILE, "golden_data.json", "checklist.json")),
    _section("port", (TRACE_FILE, "comparison.json")),
    _section("sweep", ("sweep_history.json",)),
    _section("vectors", ("sweep_history.json",), "sweep_vectors"),
    _section("memory", MEMORY_FILES, "memory_timeline"),
    _section("peaks", MEMORY_FILES, "memory_peaks"),
    _section("buffers", MEMORY_FILES, "memory_buffers"),
    _section("padding", MEMORY_FILES, "memory_padding"),
    _section("inputs", MEMORY_FILES, "memory_inputs"),
    _section("comparison", ("memory_comparison.json",), "memory_comparison"),
)


# --- Output formats ---


PAGE_FILE = "report.html"
TWIN_FILE = "report.json"


def render_twin(report: Report) -> bytes:
    """The report as one JSON document."""
    return msgspec.json.format(msgspec.json.encode(twin_document(report)), indent=1) + b"\n"


def twin_document(report: Report) -> dict[str, object]:
    """The report as plain JSON values: each section under its name."""
    return {
        "schema": REPORT.name,
        "title": report.title,
        "created": report.created,
        "failed": report.failed,
        "sections": {view.name: view.document for view in report.sections},
    }


def _page_file(report: Report) -> Mapping[str, bytes]:
    return {PAGE_FILE: render_page(report)}


def _twin_file(report: Report) -> Mapping[str, bytes]:
    return {TWIN_FILE: render_twin(report)}


def _csv_files(report: Report) -> Mapping[str, bytes]:
    from torchstone.report.spreadsheet import render_csv

    return render_csv(report)


FORMATS: Mapping[str, Callable[[Report], Mapping[str, bytes]]] = {
    "json": _twin_file,
    "html": _page_file,
    "csv": _csv_files,
}
USUAL = ("json", "html")


# Documents that no section shows, or not alone: a damaged one is reported all the same
_NOT_ALWAYS_SHOWN: Mapping[str, type[Document]] = {UNIQUE_FILE: UniqueModules, "golden_data.json": GoldenData}


def write_report(folder: Path, *, source: bool = True, formats: Sequence[str] = USUAL) -> Path:
    """Render whatever the folder holds into report.html, with report.json beside it; gives the page's path."""
    for name, kind in _NOT_ALWAYS_SHOWN.items():
        if (folder / name).is_file():
            load(folder / name, kind)
    report = assemble(ReportFolder(folder, source=source), SECTIONS)
    files = {name: content for format_name in formats for name, content in FORMATS[format_name](report).items()}
    for name, content in files.items():
        write_atomically(folder / name, content)
    return folder / PAGE_FILE

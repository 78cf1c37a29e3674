"""A report folder -> the whole report, before it is written in any format."""

from collections.abc import Sequence

from torchstone.errors import UnreadableFileError
from torchstone.record.base import Record
from torchstone.report.columns import Shown, Table
from torchstone.report.section import TRACE_FILE, ModuleColumn, ReportFolder, Section, SectionView
from torchstone.report.sections.modules import module_layout
from torchstone.report.tree import spread

TREE_COLUMNS = "modules.columns"


class Report(Record, frozen=True, kw_only=True):
    """Everything that one report shows."""

    title: str
    sections: tuple[SectionView, ...]
    module_columns: tuple[ModuleColumn, ...]
    module_table: Table | None  # the module columns of all sections, spread over the rows of the tree
    source: bool
    failed: bool  # the capture ended early
    created: str  # UTC, ISO 8601; "" where it is not known


def assemble(folder: ReportFolder, sections: Sequence[Section]) -> Report:
    """Build every section whose files are there."""
    present = [section for section in sections if all(folder.has(name) for name in section.files)]
    if not present:
        wanted = sorted({name for section in sections for name in section.files})
        msg = f"{folder.path} holds nothing to show: a report folder has one of {', '.join(wanted)}"
        raise UnreadableFileError(msg)
    views = tuple(section.build(folder) for section in present)
    every = [column for view in views for column in view.module_columns]
    columns = tuple(sorted(every, key=lambda column: column.shown is Shown.TEXT))  # long texts last
    traced = folder.has(TRACE_FILE)
    return Report(
        title=(folder.trace.provenance.model if traced else _subject(views)) or folder.path.resolve().name,
        sections=views,
        module_columns=columns,
        module_table=_module_table(folder, columns) if traced and columns else None,
        source=folder.source,
        failed=traced and folder.trace.failure is not None,
        created=folder.trace.provenance.created if traced else "",
    )


def _subject(views: Sequence[SectionView]) -> str:
    return next((view.subject for view in views if view.subject), "")


def _module_table(folder: ReportFolder, columns: Sequence[ModuleColumn]) -> Table:
    layout = module_layout(folder)
    return Table(name=TREE_COLUMNS, columns=tuple(spread(column, layout) for column in columns))

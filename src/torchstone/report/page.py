"""A report -> one HTML file that needs nothing else: assets, templates, and what the browser may do with it."""

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import jinja2
import msgspec
from markupsafe import Markup

from torchstone.errors import UnreadableFileError
from torchstone.record.base import Record, Schema
from torchstone.report.section import (
    TRACE_FILE,
    ModuleColumn,
    ReportFolder,
    Section,
    SectionView,
    Shown,
    Table,
    pack,
    pack_bytes,
    spread,
)
from torchstone.report.sections.modules import module_layout

# --- Assets, templates, content security policy ---


@cache
def asset(name: str) -> str:
    """The text of a file in report/assets."""
    return (files("torchstone.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def templates() -> jinja2.Environment:
    """The templates; what goes into them is escaped, and a name that is missing is an error."""
    loader = jinja2.PackageLoader("torchstone.report")
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)


def policy(*scripts: str) -> str:
    """What the browser may do with a page: run exactly these scripts, ask nobody but the server that it came from."""
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'"
    )


def for_script(document: dict[str, object]) -> Markup:
    """JSON that is safe inside a script element: no `<` can end it."""
    text = msgspec.json.encode(document).decode().replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(text)  # noqa: S704 - escaped in the line above


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode("ascii")


# --- The chart library, from the installed `plotly` package; pages without charts do not contain it ---


EXTRA = "report"  # pip install 'torchstone[report]'


def plotly_source() -> str | None:
    """The library's code; None where the package is not installed."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        return None
    bundle = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    return bundle.read_text(encoding="utf-8") if bundle.is_file() else None


# --- The whole report of a folder, before it is rendered in any format ---


TREE_COLUMNS = "modules.columns"
REPORT = Schema(kind="report", version=1)  # of report.json, the same report as plain data


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
        msg = f"{folder.path} contains no results to render; a report folder contains one of {', '.join(wanted)}"
        raise UnreadableFileError(msg)
    built = [section.build(folder) for section in present]
    views = tuple(view for view in built if view is not None)
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


# --- Rendering one self-contained HTML file ---


PAGE_SCHEMA = "torchstone/page/1"

# In this order, in one script: each adds its part to the `torchstone` object that the first one makes.
SCRIPTS = (
    "namespace.js", "format.js", "elements.js", "decode.js", "m4.js", "paths.js", "state.js", "theme.js", "refresh.js",
    "search.js", "rows.js", "tree.js", "treeview.js", "sorting.js", "table.js", "download.js", "figure.js", "chart.js",
    "details.js", "drawing.js", "canvas.js", "listing.js", "app.js",
)  # fmt: skip


def render_page(report: Report) -> bytes:
    """The whole page, the same bytes every time."""
    charts = any(view.charts for view in report.sections)
    plotly = plotly_source() if charts else None
    code = page_code(report)
    html = (
        templates()
        .get_template("page.html")
        .render(
            title=report.title,
            policy=policy(code, *([] if plotly is None else [plotly])),
            style=Markup(asset("report.css")),  # noqa: S704 - our own file
            code=Markup(code),  # noqa: S704 - our own files
            index=for_script(_index(report, with_plotly=plotly is not None)),
            blobs=[(table.name, pack(table)) for table in _tables(report)],
            plotly=None if plotly is None else pack_bytes(plotly.encode()),
            source=report.source,
        )
    )
    return html.encode()


def page_code(report: Report) -> str:
    """The page's one script: the shell, then the scripts of the sections, then the start."""
    own = dict.fromkeys(view.script for view in report.sections if view.script)
    shell, start = SCRIPTS[:-1], SCRIPTS[-1]
    return "\n".join(asset(name) for name in (*shell, *own, start))


def _index(report: Report, *, with_plotly: bool) -> dict[str, object]:
    """The small part of the data, read at once; the tables are decoded when they are looked at."""
    return {
        "schema": PAGE_SCHEMA,
        "title": report.title,
        "created": report.created,
        "failed": report.failed,
        "source": report.source,
        "plotly": with_plotly,
        "sections": [_section(view) for view in report.sections],
        "module_columns": [
            {"name": column.name, "title": column.title, "shown": column.shown.value, "bar": column.bar}
            for column in report.module_columns
        ],
    }


def _section(view: SectionView) -> dict[str, object]:
    return {
        "name": view.name,
        "title": view.title,
        "banner": None if view.banner is None else _complete(view.banner),
        "cards": [_complete(card) for card in view.cards],
        "charts": [_complete(chart) for chart in view.charts],
        "tables": [{"name": table.name, "title": table.title, "empty": table.empty} for table in view.tables],
        "notes": list(view.notes),
        "settings": view.settings,
        "script": view.script,
    }


def _complete(record: msgspec.Struct) -> dict[str, object]:
    """A record with its defaults: the page reads every field."""
    return {
        name: [_complete(item) if isinstance(item, msgspec.Struct) else item for item in value]
        if isinstance(value, tuple)
        else value
        for name, value in ((name, getattr(record, name)) for name in record.__struct_fields__)
    }


def _tables(report: Report) -> list[Table]:
    tables = [table for view in report.sections for table in view.tables]
    return tables if report.module_table is None else [*tables, report.module_table]

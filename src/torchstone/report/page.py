"""A report -> one HTML file that needs nothing else."""

from typing import Any

import msgspec
from markupsafe import Markup

from torchstone.report.assemble import Report
from torchstone.report.columns import Table, pack, pack_bytes
from torchstone.report.plotly import plotly_source
from torchstone.report.section import SectionView
from torchstone.report.shell import asset, for_script, policy, templates

PAGE_SCHEMA = "torchstone/page/1"

# In this order, in one script: each adds its part to the `torchstone` object that the first one makes.
SCRIPTS = (
    "namespace.js", "format.js", "elements.js", "decode.js", "m4.js", "paths.js", "state.js", "theme.js", "search.js",
    "rows.js", "tree.js", "treeview.js", "sorting.js", "table.js", "download.js", "figure.js", "chart.js", "details.js",
    "drawing.js", "canvas.js", "listing.js", "app.js",
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


def _index(report: Report, *, with_plotly: bool) -> dict[str, Any]:
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


def _section(view: SectionView) -> dict[str, Any]:
    return {
        "name": view.name,
        "title": view.title,
        "cards": [_complete(card) for card in view.cards],
        "charts": [_complete(chart) for chart in view.charts],
        "tables": [{"name": table.name, "title": table.title, "empty": table.empty} for table in view.tables],
        "notes": list(view.notes),
        "settings": view.settings,
        "script": view.script,
    }


def _complete(record: msgspec.Struct) -> dict[str, Any]:
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

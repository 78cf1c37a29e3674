"""A report -> one HTML file that needs nothing else."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from torchstone.report.assemble import Report
from torchstone.report.columns import Table, pack, pack_bytes
from torchstone.report.plotly import plotly_source
from torchstone.report.section import SectionView

PAGE_SCHEMA = "torchstone/page/1"

# In this order, in one script: each adds its part to the `torchstone` object that the first one makes.
SCRIPTS = (
    "namespace.js", "format.js", "elements.js", "decode.js", "state.js", "theme.js", "search.js", "rows.js",
    "tree.js", "treeview.js", "sorting.js", "table.js", "download.js",
    "details.js", "listing.js", "app.js",
)  # fmt: skip


def render_page(report: Report) -> bytes:
    """The whole page, the same bytes every time."""
    charts = any(view.charts for view in report.sections)
    plotly = plotly_source() if charts else None
    code = page_code(report)
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in (code, plotly) if text is not None)
    html = (
        _templates()
        .get_template("page.html")
        .render(
            title=report.title,
            policy=f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
            "form-action 'none'; base-uri 'none'",
            style=Markup(asset("report.css")),  # noqa: S704 - our own file
            code=Markup(code),  # noqa: S704 - our own files
            index=_for_script(_index(report, with_plotly=plotly is not None)),
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


@cache
def asset(name: str) -> str:
    """The text of a file in report/assets."""
    return (files("torchstone.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _templates() -> jinja2.Environment:
    loader = jinja2.PackageLoader("torchstone.report")
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)


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


def _for_script(document: dict[str, Any]) -> Markup:
    """JSON that is safe inside a script element: no `<` can end it."""
    text = msgspec.json.encode(document).decode().replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(text)  # noqa: S704 - escaped in the line above


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode("ascii")

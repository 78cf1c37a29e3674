"""A folder -> the page that lists its reports."""

from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from torchstone.report.listing import Listed, State, reports_in
from torchstone.report.shell import asset, policy, templates
from torchstone.units import show_bytes

_MAX_TITLE = 200
_CHECK, _CROSS, _QUESTION = (
    "M3.5 8.5l3 3 6-7",
    "M4.5 4.5l7 7M11.5 4.5l-7 7",
    "M6 6.2a2 2 0 1 1 2.8 1.9c-.6.3-.8.6-.8 1.2M8 11.6v.2",
)
_TONES = {
    State.FINE: ("good", _CHECK),
    State.FAILED: ("bad", _CROSS),
    State.NEWER: ("warning", _QUESTION),
    State.UNKNOWN: ("warning", _QUESTION),
}


def render_index(folder: Path) -> bytes:
    """The page that lists the reports of a folder."""
    code = "\n".join(asset(name) for name in ("namespace.js", "format.js", "elements.js", "theme.js", "reports.js"))
    html = (
        templates()
        .get_template("index.html")
        .render(
            name=folder.name or str(folder),
            policy=policy(code),
            style=Markup(asset("report.css")),  # noqa: S704 - our own file
            code=Markup(code),  # noqa: S704 - our own files
            reports=[_row(one) for one in reports_in(folder)],
        )
    )
    return html.encode()


def _row(one: Listed) -> dict[str, str]:
    tone, icon = _TONES[one.state]
    return {
        "path": one.path,
        "address": "/" + quote(one.path),
        "title": one.title[:_MAX_TITLE],
        "state": one.state.value,
        "tone": tone,
        "icon": icon,
        "size": show_bytes(one.size_bytes),
        "modified": one.modified.replace("T", " ").removesuffix("Z"),
    }

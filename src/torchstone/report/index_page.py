"""A folder -> the page that lists its reports."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

import msgspec
from markupsafe import Markup

from torchstone.errors import NewerSchemaError, UnreadableFileError
from torchstone.record.base import Record
from torchstone.record.codec import read_version
from torchstone.record.files import read_file
from torchstone.report.page import REPORT, asset, policy, templates
from torchstone.units import show_bytes

# --- Finding the reports of a folder ---


PAGE_SUFFIX = ".html"
_MAX_FOLDERS = 5_000


class State(StrEnum):
    """What a report says about its run."""

    FINE = "fine"
    FAILED = "failed"  # the capture ended early
    NEWER = "made by a newer torchstone"
    UNKNOWN = "unknown"  # a page without a readable twin beside it


class Listed(Record, frozen=True, kw_only=True):
    """One report of a folder."""

    path: str  # relative to the folder, with forward slashes
    title: str
    state: State
    size_bytes: int
    modified: str  # UTC, ISO 8601


class _TwinHead(Record, frozen=True, kw_only=True):
    schema: str = ""
    title: str = ""
    failed: bool = False


def reports_in(folder: Path) -> tuple[Listed, ...]:
    """Every HTML page below a folder, hidden folders and links that lead out left aside, newest first."""
    root = folder.resolve()
    found: list[Listed] = []
    for number, (here, folders, names) in enumerate(os.walk(root)):
        if number >= _MAX_FOLDERS:
            break
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(here) / name
            if name.endswith(PAGE_SUFFIX) and not name.startswith("."):
                # links that go in a circle, and pages that were removed meanwhile
                with suppress(OSError, RuntimeError):
                    if path.resolve(strict=True).is_relative_to(root) and path.is_file():
                        found.append(_listed(path, root))
    return tuple(sorted(found, key=lambda one: (one.modified, one.path), reverse=True))


def _listed(path: Path, root: Path) -> Listed:
    title, state = _twin_of(path)
    status = path.stat()
    relative = path.relative_to(root)
    return Listed(
        path=relative.as_posix(),
        title=title or (relative.parent.name or path.stem),
        state=state,
        size_bytes=status.st_size,
        modified=datetime.fromtimestamp(status.st_mtime, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def _twin_of(page: Path) -> tuple[str, State]:
    """The title and state that the JSON beside a page gives."""
    twin = page.with_suffix(".json")
    try:
        head = msgspec.json.decode(read_file(twin), type=_TwinHead)
        read_version(head.schema, REPORT.kind, newest=REPORT.version, origin=str(twin))
    except NewerSchemaError:
        return "", State.NEWER
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError, UnreadableFileError):
        return "", State.UNKNOWN
    return head.title, State.FAILED if head.failed else State.FINE


# --- The index page of `torchstone serve` ---


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
    code = "\n".join(
        asset(name) for name in ("namespace.js", "format.js", "elements.js", "theme.js", "refresh.js", "reports.js")
    )
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
    return html.encode("utf-8", "backslashreplace")  # names of files need not be UTF-8


def _row(one: Listed) -> dict[str, str]:
    tone, icon = _TONES[one.state]
    return {
        "path": one.path,
        "address": "/" + quote(os.fsencode(one.path)),
        "title": one.title[:_MAX_TITLE],
        "state": one.state.value,
        "tone": tone,
        "icon": icon,
        "size": show_bytes(one.size_bytes),
        "modified": one.modified.replace("T", " ").removesuffix("Z"),
    }

"""A folder -> the reports in it, for the index page of `torchstone serve`."""

from datetime import UTC, datetime
from enum import StrEnum
from os import walk
from pathlib import Path

import msgspec

from torchstone.errors import NewerSchemaError, UnreadableFileError
from torchstone.record.base import Record
from torchstone.record.codec import read_version

PAGE_SUFFIX = ".html"
TWIN_KIND = "report"
TWIN_VERSION = 1
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
    for number, (here, folders, names) in enumerate(walk(root)):
        if number >= _MAX_FOLDERS:
            break
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(here) / name
            if name.endswith(PAGE_SUFFIX) and not name.startswith(".") and path.resolve().is_relative_to(root):
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
        head = msgspec.json.decode(twin.read_bytes(), type=_TwinHead)
        read_version(head.schema, TWIN_KIND, newest=TWIN_VERSION, origin=str(twin))
    except NewerSchemaError:
        return "", State.NEWER
    except (OSError, UnicodeDecodeError, msgspec.DecodeError, UnreadableFileError):
        return "", State.UNKNOWN
    return head.title, State.FAILED if head.failed else State.FINE

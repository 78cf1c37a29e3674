"""What a command wrote, without what may differ from run to run: times, and how much a killed run contributed."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

_TIMES = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.+:Z]*")
_VARIES = frozenset(
    (
        "created", "seals", "elapsed_s", "seconds", "started", "ran_at", "reused", "reused_tasks", "reused_from",
        "tasks", "run", "command", "environment", "commit", "branch", "written", "date", "peak_bytes", "last_output",
    )
)  # fmt: skip
_DATABASES = (".db", ".db-wal", ".db-shm", ".db-journal")  # compared by their rows, where that matters
_PAGES = (".html",)  # their content is also in a JSON file beside them
_OF_RESUMING = ("stages", "journal.jsonl", "results.jsonl", "dependencies.json")  # grow with each try


def files_of(folder: Path) -> dict[str, object]:
    """The finished files below a folder, by their path in it."""
    return {
        _name_of(path.relative_to(folder)): _content(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.suffix not in _DATABASES
        and not any(part in _OF_RESUMING or part == "home" for part in path.relative_to(folder).parts)
    }


def unfinished_in(folder: Path) -> list[str]:
    """Files that a command left without finishing them."""
    hidden = (path for path in folder.rglob(".*") if path.name != ".gitignore")
    return [str(path.relative_to(folder)) for path in hidden]


def _name_of(path: Path) -> str:
    return re.sub(r"\d{8}T\d{6}-[0-9a-f]{6}", "RUN", str(path))


def _content(path: Path) -> object:
    content = path.read_bytes()
    if path.suffix in _PAGES:
        return len(content) > 0
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    if path.name.endswith((".json", ".json.gz")):
        return _steady(json.loads(content))
    return _TIMES.sub(b"", content)


def _steady(value: Any) -> Any:
    match value:
        case dict():
            return {key: _steady(part) for key, part in value.items() if key not in _VARIES}
        case list():
            return [_steady(part) for part in value]
        case str():
            return _TIMES.sub(b"", value.encode("utf-8", "surrogatepass"))
        case _:
            return value

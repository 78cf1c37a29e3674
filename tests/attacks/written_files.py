"""What a command wrote, without what may differ from run to run: times, and how much a killed run contributed."""

import gzip
import json
import re
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_TIMES = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.+:Z]*")
_VARIES = frozenset(
    (
        "created", "seals", "elapsed_s", "seconds", "started", "ran_at", "reused", "reused_tasks", "reused_from",
        "tasks", "run", "command", "environment", "commit", "branch", "written", "date", "peak_bytes", "last_output",
    )
)  # fmt: skip
_DATABASE = ".db"  # compared by its rows
_BESIDE_DATABASES = (".db-wal", ".db-shm", ".db-journal")
_OF_TRIES = ("id", "origin")  # columns: a source that is traced again replaces its rows
_WITH_TIMES = ("origin", "trace_run")  # tables whose digests are made from times, too
_VERSION = "torchstone_version"  # a table that an empty database has, too
_NO_ROWS: dict[str, object] = {}
_PAGES = (".html",)  # their content is also in a JSON file beside them
_OF_RESUMING = ("stages", "journal.jsonl", "results.jsonl", "dependencies.json")  # grow with each try


def files_of(folder: Path) -> dict[str, object]:
    """The finished files below a folder, by their path in it; a database without rows is as good as none."""
    found = (
        (_name_of(path.relative_to(folder)), _content(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.suffix not in _BESIDE_DATABASES
        and not any(part in _OF_RESUMING or part == "home" for part in path.relative_to(folder).parts)
    )
    return {name: content for name, content in found if content != _NO_ROWS}


def unfinished_in(folder: Path) -> list[str]:
    """Files that a command left without finishing them."""
    hidden = (path for path in folder.rglob(".*") if path.name != ".gitignore")
    return [str(path.relative_to(folder)) for path in hidden]


def _name_of(path: Path) -> str:
    return re.sub(r"\d{8}T\d{6}-[0-9a-f]{6}", "RUN", str(path))


def _content(path: Path) -> object:
    if path.suffix == _DATABASE:
        return _rows(path)
    content = path.read_bytes()
    if path.suffix in _PAGES:
        if not content.rstrip().endswith(b"</html>"):
            msg = f"{path.name} has no end"
            raise ValueError(msg)
        return True
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    if path.name.endswith((".json", ".json.gz")):
        return _steady(json.loads(content))
    return _TIMES.sub(b"", content)


def _rows(path: Path) -> object:
    """The rows of each table; read from a copy, because SQLite completes or undoes what a killed process began."""
    with TemporaryDirectory() as folder:
        for part in ("", *(suffix.removeprefix(_DATABASE) for suffix in _BESIDE_DATABASES)):
            with suppress(FileNotFoundError):
                shutil.copy(f"{path}{part}", folder)
        with closing(sqlite3.connect(Path(folder) / path.name)) as connection:
            tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
            found = {name: _rows_of(connection, name) for name in sorted(tables) if name != _VERSION}
            return {name: rows for name, rows in found.items() if rows}


def _rows_of(connection: sqlite3.Connection, table: str) -> list[str]:
    answer = connection.execute(f'select * from "{table}"')  # noqa: S608 - the name of a table that is there
    varies = {*_OF_TRIES, *(["digest"] if table in _WITH_TIMES else [])}
    columns = [column for column, *_ in answer.description]
    rows = (dict(zip(columns, map(_plain, row), strict=True)) for row in answer)
    return sorted(
        repr(_steady({column: value for column, value in row.items() if column not in varies})) for row in rows
    )


def _plain(value: object) -> object:
    return json.loads(value) if isinstance(value, str) and value.startswith(("{", "[")) else value


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

"""A file that ttnn wrote (graph report, graph capture, or the database of ttnn-visualizer) -> MemoryTimeline.

The database has no events, but the buffers that are live after each operation and, in most versions, the captured graph
of each. From both, the events of a report are made again, so that one reader serves all.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from torchstone.errors import InputError, UnreadableFileError
from torchstone.foreign import computed_tables
from torchstone.memory.ttnn_report import DATABASE_DIALECT, Json, is_graph_report, is_node_list, read_report
from torchstone.record.files import open_regular, parse_json, read_file, read_json, shortened
from torchstone.record.memory import MemoryTimeline

_SQLITE = b"SQLite format 3\x00"
_WORDS = (b'"node_type"', b'"buffer_pages', b'"cluster_descriptor"')
_SAMPLE_BYTES = 1 << 16
_BUFFER_TYPES = {0: "DRAM", 1: "L1", 3: "L1_SMALL", 4: "TRACE"}
FILES = ("db.sqlite", "report.json")
_TABLES = (
    "buffers", "captured_graph", "devices", "input_tensors", "operation_arguments", "operations", "output_tensors",
    "stack_traces", "tensors",
)  # fmt: skip
_BUFFER_COLUMNS = ("address", "max_size_per_bank", "buffer_type", "device_id")


def is_ttnn_file(path: Path) -> bool:
    """Whether a file is one of ttnn's, by its first bytes."""
    with open_regular(path) as file:
        start = file.read(_SAMPLE_BYTES)
    return start.startswith(_SQLITE) or (start.lstrip()[:1] in {b"{", b"["} and any(word in start for word in _WORDS))


def ttnn_file_in(folder: Path) -> Path | None:
    """The report of ttnn in a folder: its events, else its database."""
    return next((folder / name for name in reversed(FILES) if (folder / name).is_file()), None)


def read_ttnn_file(path: Path) -> MemoryTimeline:
    """The timeline of a file of ttnn; raises UnreadableFileError where it is damaged, InputError for another kind."""
    with open_regular(path) as file:
        is_database = file.read(len(_SQLITE)) == _SQLITE
    if is_database:
        return _read_database(path)
    document: object = parse_json(read_file(path), origin=f"{path}, which looks like a graph report of ttnn,")
    if is_node_list(document):
        document = {"graph": document}
    if not is_graph_report(document):
        msg = f"{path} is JSON, but has no graph of ttnn; give a graph report, its db.sqlite, or a runtime log"
        raise InputError(msg)
    beside = path.with_name(f"{path.stem}.python_io.json")
    python_io: object = read_json(beside) if beside.is_file() else None  # it has the source lines
    return read_report(document, source=str(path), python_io=python_io)


# --- The database ---


def _read_database(path: Path) -> MemoryTimeline:
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            connection.text_factory = partial(str, encoding="utf-8", errors="replace")
            database = _Database(connection)
            nodes = list(database.nodes())
            document: Json = {"graph": nodes, "devices": database.rows("devices")}
            python_io: list[object] = list(database.python_io())
    except KeyError as error:
        msg = f"cannot read the database {path}: a table has no column {error}"
        raise UnreadableFileError(msg) from error
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the message of SQLite quotes the damaged text
        msg = f"cannot read the database {path}: {shortened(error)}"
        raise UnreadableFileError(msg) from error
    except MemoryError:  # SQLite's answer to some damage, and to a file too large for this machine
        msg = f"cannot read the database {path}: it is damaged, or needs more memory than there is"
        raise UnreadableFileError(msg) from None
    if not nodes:
        msg = f"{path} has no operations with buffers; give a database that ttnn wrote for ttnn-visualizer"
        raise InputError(msg)
    return read_report(document, source=str(path), python_io=python_io, dialect=DATABASE_DIALECT)


_PROGRAM_BUFFERS = ("circular_buffer_allocate", "dataflow_buffer_allocate")


class _Database:
    """The tables of a report; those and the columns that a version does not have are empty."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._tables = {str(row[0]) for row in found}
        if computed := connection.execute(computed_tables(_TABLES)).fetchone():
            msg = f"its table {computed[0]:.80} is computed, as a view is, and not stored"
            raise sqlite3.DatabaseError(msg)
        self._operations = [row for row in self.rows("operations") if not row.get("rank")]
        self._tensors: dict[object, dict[str, object]] = {}
        self._addresses: dict[object, set[object]] = {}
        for row in self.rows("tensors"):
            self._tensors[row["tensor_id"]] = row
            self._addresses.setdefault(row["tensor_id"], set()).add(row.get("address"))
        self._inputs = self._by_operation("input_tensors")
        self._outputs = self._by_operation("output_tensors")

    def rows(self, table: str) -> list[dict[str, object]]:
        """All rows of a table; none where it does not exist."""
        if table not in self._tables:
            return []
        return [dict(row) for row in self._connection.execute(f"SELECT * FROM {table}")]  # noqa: S608 - a fixed name

    def _by_operation(self, table: str) -> dict[object, list[dict[str, object]]]:
        found: dict[object, list[dict[str, object]]] = {}
        for row in self.rows(table):
            if not row.get("rank"):
                found.setdefault(row.get("operation_id"), []).append(row)
        return found

    def python_io(self) -> Iterator[object]:
        """Each operation as Python called it."""
        stacks, arguments = self._by_operation("stack_traces"), self._by_operation("operation_arguments")
        for row in self._operations:
            number = row["operation_id"]
            yield {
                "name": row["name"],
                "input_tensor_ids": [one["tensor_id"] for one in self._inputs.get(number, [])],
                "output_tensor_ids": [one["tensor_id"] for one in self._outputs.get(number, [])],
                "arguments": {str(one["name"]): one["value"] for one in arguments.get(number, [])},
                "python_stack_trace": [one["stack_trace"] for one in stacks.get(number, [])],
            }

    def nodes(self) -> Iterator[Json]:
        """The events of all operations, from the buffers that are live after each."""
        tensors = self._tensors
        buffers = self._by_operation("buffers")
        graphs = {row.get("operation_id"): row.get("captured_graph") for row in self.rows("captured_graph")}
        device = next((one[0]["device_id"] for one in buffers.values() if one), None)
        before: dict[tuple[object, ...], Json] = {}
        for number, operation in enumerate(self._operations):
            key = operation["operation_id"]
            after = {_identity(row): _buffer(row) for row in buffers.get(key, []) if row["device_id"] == device}
            made = [tensors[one["tensor_id"]] for one in self._outputs.get(key, []) if one["tensor_id"] in tensors]
            if number == 0:
                outputs = {one.get("address") for one in made}
                before = {one: values for one, values in after.items() if values["address"] not in outputs}
                yield from (_node("buffer_allocate", values) for values in before.values())
                yield from (_node("tensor", row) for row in tensors.values())
            yield _node("function_start", {"name": operation["name"]})
            reused = self._reused(key, made, before)
            yield from (_node("buffer_deallocate", values) for values in reused.values())
            before = {one: values for one, values in before.items() if one not in reused}
            yield from (_node("buffer_allocate", values) for one, values in after.items() if one not in before)
            yield from (_node("tensor", row) for row in made)
            yield from _circular_buffers(graphs.get(key))
            yield _node("program_execution", {})
            yield from (_node("buffer_deallocate", values) for one, values in before.items() if one not in after)
            yield _node("function_end", {"name": operation["name"]})
            before = after

    def _reused(
        self, operation: object, made: list[dict[str, object]], before: dict[tuple[object, ...], Json]
    ) -> dict[tuple[object, ...], Json]:
        """Buffers at whose address an operation made a tensor: the old one was freed, unless it is an input."""
        inputs = {one["tensor_id"] for one in self._inputs.get(operation, [])}
        known = set().union(*(self._addresses.get(one, ()) for one in inputs))
        addresses = {one.get("address") for one in made if one["tensor_id"] not in inputs} - known
        return {one: values for one, values in before.items() if values["address"] in addresses}


def _identity(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(row.get(name) for name in _BUFFER_COLUMNS)


def _buffer(row: dict[str, object]) -> Json:
    kind = row.get("buffer_type")
    return {
        "address": row.get("address"),
        "max_size_per_bank": row.get("max_size_per_bank"),
        "type": _BUFFER_TYPES.get(kind if isinstance(kind, int) else 0, "DRAM"),
    }


def _circular_buffers(captured: object) -> Iterator[Json]:
    try:
        nodes = parse_json(captured, origin="a captured graph") if isinstance(captured, str) else []
    except UnreadableFileError:
        return  # the graph of one operation: without it, only its circular buffers are unknown
    for node in nodes if isinstance(nodes, list) else ():
        if isinstance(node, dict) and node.get("node_type") in _PROGRAM_BUFFERS:
            yield node


def _node(kind: str, params: Json) -> Json:
    return {"node_type": kind, "params": dict(params), "connections": []}

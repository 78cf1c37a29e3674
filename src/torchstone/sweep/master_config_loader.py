"""MasterConfigLoader: traced configurations as the parameters of a sweep module, in the form that tt-metal uses."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from torchstone.sweep.master_entries import UNREADABLE, Entry, position_of, read_master, spellings

# --- Values ---
# Traced values -> what a sweep module works with: ttnn objects where ttnn can be imported, torch and plain ones else.
# Nothing is put in the place of a value that cannot be read: it stays as its text, or the caller hears of it.


_TORCH_DTYPES = {
    "BFLOAT16": "bfloat16",
    "FLOAT32": "float32",
    "INT32": "int32",
    "UINT32": "uint32",
    "UINT16": "uint16",
    "UINT8": "uint8",
}
_NUMBERS = re.compile(r"-?\d+")


class Tensor:
    """A traced tensor, whichever tool wrote it."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        inner = description.get("Tensor")
        if isinstance(inner, Mapping):  # the layout of 2025
            spec = inner["tensor_spec"]
            layout = spec["tensor_layout"]
            self.shape = list(spec["logical_shape"])
            self.dtype, self.memory_config = layout["dtype"], layout.get("memory_config")
            self.layout, self.storage_type = inner.get("layout"), inner.get("storage_type")
            self.placement = None
        elif "original_shape" in description:
            self.shape = list(description["original_shape"])
            self.dtype, self.memory_config = description["original_dtype"], description.get("memory_config")
            self.layout, self.storage_type = description.get("layout"), description.get("storage_type")
            self.placement = description.get("tensor_placement")
        else:  # a tensor of PyTorch
            self.shape = list(description["shape"])
            self.dtype = description["dtype"]
            self.memory_config = {
                "stride": description.get("stride"),
                "storage_offset": description.get("storage_offset", 0),
            }
            self.layout, self.storage_type, self.placement = (
                description.get("layout", "strided"),
                description.get("device", "cpu"),
                None,
            )


def tensor_in(value: object) -> Tensor | None:
    """The tensor that a value describes; None if it is none."""
    if not isinstance(value, Mapping):
        return None
    is_tensor = "Tensor" in value or "original_shape" in value or value.get("type") == "tensor"
    return Tensor(value) if is_tensor else None


def dtype_of(text: object) -> object:
    """An element type: ttnn's own where ttnn is there, torch's else; the text where torch has none."""
    name = _last_part(text)
    ttnn = _ttnn()
    if ttnn is not None and hasattr(ttnn, name.lower()):
        return getattr(ttnn, name.lower())
    torch = _torch()
    found = getattr(torch, _TORCH_DTYPES.get(name, name), None) if torch is not None else None
    return found if found is not None else name


def layout_of(text: object) -> object:
    """TILE or ROW_MAJOR as ttnn's constant, or as text."""
    if text is None:
        return None
    name = _last_part(text)
    ttnn = _ttnn()
    return getattr(ttnn, f"{name}_LAYOUT", name) if ttnn is not None else name


def memory_config_of(description: Any) -> Any:
    """A memory configuration: ttnn's object where ttnn is there, a plain dictionary else."""
    if not isinstance(description, Mapping):
        return description
    description = description.get("MemoryConfig", description)
    ttnn = _ttnn()
    if ttnn is None or "memory_layout" not in description:
        return _clean(description)
    memory_layout = getattr(ttnn.TensorMemoryLayout, _last_part(description["memory_layout"]))
    buffer_type = getattr(ttnn.BufferType, _last_part(description["buffer_type"]))
    shards = description.get("shard_spec")
    if not isinstance(shards, Mapping):
        return ttnn.MemoryConfig(memory_layout, buffer_type)
    return ttnn.MemoryConfig(memory_layout, buffer_type, _shard_spec(ttnn, shards))


def plain_value(value: object) -> object:
    """A value that is no tensor: element types and memory configurations as above, anything else as it is."""
    if not isinstance(value, Mapping):
        return dtype_of(value) if isinstance(value, str) and value.startswith("DataType") else value
    if value.get("type") in ("DataType", "dtype"):
        return dtype_of(value.get("repr", ""))
    if value.get("type") == "Layout":
        return layout_of(value.get("repr", ""))
    if "memory_layout" in value or "MemoryConfig" in value:
        return memory_config_of(value)
    return dict(value)


def _shard_spec(ttnn: Any, description: Mapping[str, Any]) -> object:
    ranges = [
        ttnn.CoreRange(ttnn.CoreCoord(*_point(first)), ttnn.CoreCoord(*_point(last)))
        for first, last in _ranges(description["grid"])
    ]
    shape = description["shape"]
    shape = [int(one) for one in _NUMBERS.findall(shape)] if isinstance(shape, str) else list(shape)
    orientation = getattr(ttnn.ShardOrientation, _last_part(description["orientation"]))
    return ttnn.ShardSpec(ttnn.CoreRangeSet(set(ranges)), shape, orientation)


def _ranges(grid: Any) -> list[tuple[Any, Any]]:
    """Ranges of cores: {"start", "end"} each, or corners in pairs, alone or in lists of their own."""
    if grid and isinstance(grid[0], Mapping) and "start" in grid[0]:
        return [(one["start"], one["end"]) for one in grid]
    if grid and isinstance(grid[0], Mapping):
        return list(zip(grid[::2], grid[1::2], strict=True))
    return [(one[0], one[1]) for one in grid]


def _point(description: Mapping[str, Any]) -> tuple[int, int]:
    return int(description["x"]), int(description["y"])


def _clean(description: Mapping[str, object]) -> dict[str, object]:
    """Without the numbers that only the process knew that wrote them."""
    return {name: part for name, part in description.items() if name != "hash"}


def _last_part(text: object) -> str:
    return str(text).replace("::", ".").rpartition(".")[2]


@cache
def _ttnn() -> Any:
    return importlib.import_module("ttnn") if importlib.util.find_spec("ttnn") else None


@cache
def _torch() -> object:
    return importlib.import_module("torch") if importlib.util.find_spec("torch") else None


# Traced configurations of an op, from a database of torchstone: a SQLite file, or PostgreSQL by URL. Sweep modules
# read them where torchstone itself need not be installed: the standard library, and psycopg for PostgreSQL.


Ask = Callable[..., list[tuple[Any, ...]]]

_DRIVER = re.compile(r"^postgres(ql)?(\+\w+)?://")
_PASSWORD = re.compile(r"://([^:@/]*):[^@/]*@")
_OPS = (  # from one op to the next in the index, not over all configurations
    "WITH RECURSIVE ops(op) AS (SELECT min(op) FROM configuration UNION ALL "
    "SELECT (SELECT min(op) FROM configuration WHERE op > ops.op) FROM ops WHERE ops.op IS NOT NULL) "
    "SELECT op FROM ops WHERE op IS NOT NULL"
)
_CONFIGURATIONS = "SELECT id, key, body, knowledge FROM configuration WHERE op = {} ORDER BY key"
_EXECUTIONS = (
    "SELECT DISTINCT occurrence.configuration, origin.source, place.details FROM configuration "
    "JOIN occurrence ON occurrence.configuration = configuration.id JOIN origin ON origin.id = occurrence.origin "
    "JOIN place ON place.id = occurrence.place WHERE configuration.op = {}"
)


def is_server(address: str) -> bool:
    """Whether an address is that of a PostgreSQL database."""
    return _DRIVER.match(address) is not None


def read_database(address: str, op: str) -> tuple[list[Entry], list[str]]:
    """The configurations of an op under any of its spellings, and all ops that the database has."""
    read = _read_server if is_server(address) else _read_file
    return read(address, op)


def without_password(address: str) -> str:
    """An address as messages name it."""
    return _PASSWORD.sub(r"://\1@", address)


def _read_file(path: str, op: str) -> tuple[list[Entry], list[str]]:
    try:
        with closing(sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return _read(lambda query, *values: connection.execute(query.format("?"), values).fetchall(), op)
    except sqlite3.DatabaseError as error:
        msg = f"{path} is not a database of torchstone: {error}"
        raise ValueError(msg) from error


def _read_server(url: str, op: str) -> tuple[list[Entry], list[str]]:
    try:
        import psycopg
    except ModuleNotFoundError as error:
        msg = f"reading {without_password(url)} needs psycopg: pip install 'psycopg[binary]'"
        raise ModuleNotFoundError(msg) from error
    try:
        with psycopg.connect(_DRIVER.sub("postgresql://", url), connect_timeout=10) as connection:
            connection.read_only = True
            return _read(lambda query, *values: connection.execute(query.format("%s"), values).fetchall(), op)
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        msg = f"cannot read {without_password(url)}: {reason}"
        raise ValueError(msg) from error


def _read(ask: Ask, op: str) -> tuple[list[Entry], list[str]]:
    names = [name for (name,) in ask(_OPS)]
    found = next((name for name in spellings(op) if name in names), None)
    if found is None:
        return [], names
    executions: dict[int, list[tuple[str, str]]] = {}
    for number, source, details in ask(_EXECUTIONS, found):
        executions.setdefault(number, []).append((source, details or ""))
    rows = ask(_CONFIGURATIONS, found)
    return [_entry(found, row[1:], sorted(executions.get(row[0], []))) for row in rows], names


def _entry(op: str, row: tuple[str, str, str | None], executions: list[tuple[str, str]]) -> Entry:
    key, body, knowledge = row
    description = json.loads(body)
    foreign = (json.loads(knowledge) if knowledge else {}).get("foreign") or []
    arguments = {one["name"]: _plain(one.get("value")) for one in description.get("arguments", ())}
    return Entry(
        op,
        arguments,
        [{"source": source, **(_plain(json.loads(details)) if details else {})} for source, details in executions],
        next((one["hash"] for one in foreign if one.get("hash")), key),
        is_list=any("v0" in one["format"] or "v1" in one["format"] for one in foreign),
        is_aten=not op.startswith("ttnn"),
    )


def _plain(value: object) -> Any:
    """A record value in JSON -> the JSON value that a master file would hold."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    match value.get("type"):
        case "entries":
            return {str(name): _plain(part) for name, part in value.get("entries", ())}
        case "items":
            parts = [_plain(part) for part in value.get("items", ())]
            return tuple(parts) if value.get("kind") == "tuple" else parts
        case "atom":
            return _atom(value)
        case "fields":
            return {"type": value["class_name"], **{name: _plain(part) for name, part in value.get("fields", ())}}
        case "opaque":
            return {UNREADABLE: value.get("text") or value["class_name"]}
        case _:
            return dict(value)


def _atom(value: Mapping[str, Any]) -> object:
    readers: dict[str, Any] = {"float": float, "int": int, "complex": complex}
    reader = readers.get(value["kind"])
    return reader(value["text"]) if reader else {"type": value["kind"], "repr": value["text"]}


# MasterConfigLoader: traced configurations as the parameters of a sweep module, in the shapes that tt-metal's has.


ABSENT = "__ABSENT__"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_BINARY = 2
_EXTRA_NAMES: dict[str, dict[int | None, str]] = {  # what sweep modules of 2025 call the arguments after the tensors
    "permute": {1: "dims"},
    "transpose": {1: "dim0", 2: "dim1"},
    "reshape": {1: "target_shape"},
    "pad": {1: "padding", 2: "value"},
    "typecast": {1: "output_dtype"},
}
Row = dict[str, object]


class UnknownOpError(LookupError):
    """The op was never traced; the message names the nearest that were."""


class MasterConfigLoader:
    """Reads traced configurations: a master JSON of any era, or a database of torchstone, a file or postgresql://...

    Where from, in this order: the database or the path given, `MasterConfigLoader.master_path`, $TTNN_MASTER_JSON_PATH,
    $TORCHSTONE_DB, torchstone.db in the current folder.
    """

    master_path: ClassVar[str | None] = None

    def __init__(self, master_path: str | Path | None = None, *, db: str | Path | None = None) -> None:
        self._address = str(
            db
            or master_path
            or self.master_path
            or os.environ.get("TTNN_MASTER_JSON_PATH")
            or os.environ.get("TORCHSTONE_DB")
            or "torchstone.db"
        )

    def get_suite_parameters(
        self,
        op: str,
        suite_name: str = "model_traced",  # noqa: ARG002 - every suite has the same configurations
        all_cases: bool = False,  # noqa: FBT001, FBT002 - called by position elsewhere
    ) -> dict[str, list[Any]]:
        """One key, all names joined by commas, with a tuple for each traced call; for all cases a list per name."""
        entries = self.entries(op)
        in_lists = all(entry.is_list for entry in entries)
        rows = [row for entry in entries for row in (_list_rows(entry) if in_lists else _dict_rows(entry))]
        for number, entry in enumerate(entries):
            _NAMED[f"{op}_traced_{number}"] = entry
        names = list(dict.fromkeys(name for row in rows for name in row))
        if all_cases:
            return {name: _distinct(row.get(name, ABSENT) for row in rows) for name in names}
        return {",".join(names): [tuple(row.get(name, ABSENT) for name in names) for row in rows]}

    def entries(self, op: str) -> list[Entry]:
        """The traced configurations of an op; raises UnknownOpError where there is none."""
        found, known = self._read(op)
        if not found:
            near = get_close_matches(op, known, n=5, cutoff=0.3) or [name for name in known if op in name][:5]
            meant = f"; near are {', '.join(near)}" if near else ""
            tried = ", ".join(spellings(op)[:4])
            msg = f"{without_password(self._address)} has no configuration of {op!r} (tried {tried}, ...){meant}"
            raise UnknownOpError(msg)
        return found

    def _read(self, op: str) -> tuple[list[Entry], list[str]]:
        if is_server(self._address):
            return read_database(self._address, op)
        path = Path(self._address)
        if not path.is_file():
            msg = f"there is no {path}; give a master file, or the database that `torchstone trace` fills"
            raise FileNotFoundError(msg)
        return read_master(path, op) if path.suffix == ".json" else read_database(self._address, op)


_NAMED: dict[str, Entry] = {}  # "add_traced_3" -> its configuration, as get_suite_parameters met it


def unpack_traced_config(name: str, use_defaults: bool = False) -> tuple[object, ...]:  # noqa: FBT001, FBT002 - as known
    """Shape, dtype, layout, memory configuration of the input and of the output, of a call with one tensor."""
    entry = _NAMED.get(name)
    tensors = [] if entry is None else _tensors(entry)
    if entry is None or len(tensors) != 1:
        return _unpacked_defaults(1) if use_defaults and entry is None else (None,) * 5
    one = tensors[0]
    return one.shape, dtype_of(one.dtype), layout_of(one.layout), memory_config_of(one.memory_config), _output(entry)


def unpack_binary_traced_config(name: str, use_defaults: bool = False) -> tuple[object, ...]:  # noqa: FBT001, FBT002 - as known
    """Both shapes, then dtypes, layouts and memory configurations in pairs, of a call with two tensors."""
    entry = _NAMED.get(name)
    tensors = [] if entry is None else _tensors(entry)
    if entry is None or len(tensors) != _BINARY:
        return _unpacked_defaults(_BINARY) if use_defaults and entry is None else (None,) * 7
    a, b = tensors
    return (
        {"self": a.shape, "other": b.shape},
        dtype_of(a.dtype),
        dtype_of(b.dtype),
        layout_of(a.layout),
        layout_of(b.layout),
        memory_config_of(a.memory_config),
        memory_config_of(b.memory_config),
    )


def _unpacked_defaults(tensors: int) -> tuple[object, ...]:
    """What is given to those who ask for defaults instead of a configuration that is not there."""
    shape, dtype, layout = [1, 32, 32], dtype_of("DataType.BFLOAT16"), layout_of("Layout.TILE")
    memory = memory_config_of({"memory_layout": "TensorMemoryLayout.INTERLEAVED", "buffer_type": "BufferType.DRAM"})
    if tensors == 1:
        return shape, dtype, layout, memory, memory
    return {"self": shape, "other": list(shape)}, dtype, dtype, layout, layout, memory, memory


def _tensors(entry: Entry) -> list[Tensor]:
    found = (tensor_in(value) for value in entry.arguments.values())
    return [tensor for tensor in found if tensor is not None]


def _output(entry: Entry) -> object:
    """The memory configuration of the result: the one asked for, or else that of the first input."""
    for value in entry.arguments.values():
        if isinstance(value, dict) and ("MemoryConfig" in value or "memory_layout" in value):
            return memory_config_of(value)
    tensors = _tensors(entry)
    return memory_config_of(tensors[0].memory_config) if tensors else None


def _list_rows(entry: Entry) -> Iterator[Row]:
    """The names of 2025: one shape for all inputs, then each property of each input."""
    tensors = _tensors(entry)
    row: Row = {}
    if len(tensors) == 1:
        row["input_shape"] = tensors[0].shape
    elif tensors:
        names = ["self", "other", *(f"input_{letter}" for letter in _LETTERS[2:])]
        row["input_shape"] = {name: tensor.shape for name, tensor in zip(names, tensors, strict=False)}
    row |= {f"input_{letter}_dtype": dtype_of(one.dtype) for letter, one in zip(_LETTERS, tensors, strict=False)}
    row |= {f"input_{letter}_layout": layout_of(one.layout) for letter, one in zip(_LETTERS, tensors, strict=False)}
    row |= {
        f"input_{letter}_memory_config": memory_config_of(one.memory_config)
        for letter, one in zip(_LETTERS, tensors, strict=False)
    }
    row["output_memory_config"] = _output(entry)
    if len(tensors) == 1:
        row["storage_type"] = tensors[0].storage_type
    yield row | _extras(entry)


def _extras(entry: Entry) -> Row:
    """The arguments that are no tensors, under the names that sweep modules of that time know.

    Those had none for the rest of a call with one or two tensors: `entries` has all of them.
    """
    short = entry.op.replace("::", ".").rpartition(".")[2]
    names: dict[int | None, str] = _EXTRA_NAMES.get(short, {})
    shows_all = len(_tensors(entry)) > _BINARY
    extras: Row = {}
    for name, value in entry.arguments.items():
        position = position_of(name)
        if tensor_in(value) is None and (position in names or shows_all):
            extras[names.get(position, name)] = plain_value(value)
    return extras


def _dict_rows(entry: Entry) -> Iterator[Row]:
    """The names of 2026: properties of each input, other arguments by their names, one row for each execution."""
    row: Row = {}
    letters = iter(_LETTERS)
    for name, value in entry.arguments.items():
        tensor = tensor_in(value)
        if tensor is None:
            row[name] = plain_value(value)
            continue
        by_position = entry.is_aten or position_of(name) is not None
        row |= _tensor_columns(f"input_{next(letters)}" if by_position else name, tensor)
    row.setdefault("output_memory_config", row.pop("memory_config", None) or _output(entry))
    for execution in entry.executions or [{}]:
        yield row | {
            "traced_source": execution.get("source"),
            "traced_machine_info": execution.get("machine_info"),
            "config_hash": entry.config_hash,
        }


def _tensor_columns(prefix: str, tensor: Tensor) -> Row:
    columns: Row = {
        f"{prefix}_shape": tuple(tensor.shape),
        f"{prefix}_dtype": dtype_of(tensor.dtype),
        f"{prefix}_layout": layout_of(tensor.layout),
        f"{prefix}_memory_config": memory_config_of(tensor.memory_config),
    }
    if tensor.placement is not None:
        columns[f"{prefix}_tensor_placement"] = tensor.placement
    if "HOST" in str(tensor.storage_type):
        columns[f"{prefix}_storage_type"] = tensor.storage_type
    return columns


def _distinct(values: Iterator[object]) -> list[object]:
    seen: dict[str, object] = {}
    for value in values:
        seen.setdefault(repr(value), value)
    return list(seen.values())

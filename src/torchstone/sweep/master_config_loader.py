"""MasterConfigLoader: traced configurations as the parameters of a sweep module, in the shapes that tt-metal's has.

from torchstone.sweep import MasterConfigLoader, unpack_traced_config
loader = MasterConfigLoader()
parameters = {"model_traced": loader.get_suite_parameters("add", all_cases=False)}
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

from torchstone.sweep.master_database import is_server, read_database, without_password
from torchstone.sweep.master_entries import Entry, position_of, read_master, spellings
from torchstone.sweep.master_values import Tensor, dtype_of, layout_of, memory_config_of, plain_value, tensor_in

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
Row = dict[str, Any]


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


def unpack_traced_config(name: str, use_defaults: bool = False) -> tuple[Any, ...]:  # noqa: FBT001, FBT002 - as known
    """Shape, dtype, layout, memory configuration of the input and of the output, of a call with one tensor."""
    entry = _NAMED.get(name)
    tensors = [] if entry is None else _tensors(entry)
    if entry is None or len(tensors) != 1:
        return _unpacked_defaults(1) if use_defaults and entry is None else (None,) * 5
    one = tensors[0]
    return one.shape, dtype_of(one.dtype), layout_of(one.layout), memory_config_of(one.memory_config), _output(entry)


def unpack_binary_traced_config(name: str, use_defaults: bool = False) -> tuple[Any, ...]:  # noqa: FBT001, FBT002 - as known
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


def _unpacked_defaults(tensors: int) -> tuple[Any, ...]:
    """What is given to those who ask for defaults instead of a configuration that is not there."""
    shape, dtype, layout = [1, 32, 32], dtype_of("DataType.BFLOAT16"), layout_of("Layout.TILE")
    memory = memory_config_of({"memory_layout": "TensorMemoryLayout.INTERLEAVED", "buffer_type": "BufferType.DRAM"})
    if tensors == 1:
        return shape, dtype, layout, memory, memory
    return {"self": shape, "other": list(shape)}, dtype, dtype, layout, layout, memory, memory


def _tensors(entry: Entry) -> list[Tensor]:
    found = (tensor_in(value) for value in entry.arguments.values())
    return [tensor for tensor in found if tensor is not None]


def _output(entry: Entry) -> Any:
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


def _distinct(values: Iterator[Any]) -> list[Any]:
    seen: dict[str, Any] = {}
    for value in values:
        seen.setdefault(repr(value), value)
    return list(seen.values())

"""MasterConfigLoader: traced configurations as the parameters of a sweep module, in the form that tt-metal uses.

A sweep module of tt-metal imports this in the place of `tests.sweep_framework.master_config_loader` and `..._v2`.
Needs the standard library alone.
"""

from __future__ import annotations

import ast
import inspect
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from torchstone.sweep.master_entries import Entry, is_server, read_database, read_master, spellings, without_password
from torchstone.sweep.traced_rows import BINARY, LETTERS, Row, output_memory_config, rows_of, tensors_of
from torchstone.sweep.ttnn_objects import (
    dict_to_compute_kernel_config,
    dict_to_core_grid,
    dict_to_memory_config,
    dict_to_program_config,
    parse_dtype,
    parse_layout,
)
from torchstone.units import many

__all__ = [
    "MasterConfigLoader", "TracedConfigWarning", "UnknownOpError", "dict_to_compute_kernel_config", "dict_to_core_grid",
    "dict_to_memory_config", "dict_to_program_config", "get_global_loader", "get_master_configs_raw",
    "get_traced_config", "load_master_configs_for_operation", "parse_dtype", "parse_layout",
    "unpack_binary_traced_config", "unpack_traced_config",
]  # fmt: skip

ABSENT = "__ABSENT__"
NOTHING_TRACED: dict[str, list[Any]] = {"traced_config_name": []}  # a suite without vectors
_MOST_NEAR = 5


class UnknownOpError(LookupError):
    """The op was never traced; the message names the nearest that were."""


class TracedConfigWarning(UserWarning):
    """A suite is smaller than the module expects: the op was never traced, or run() cannot take a call."""


# --- The signature of run(), read from the source of the module that asks ---


@dataclass(frozen=True)
class Signature:
    """The parameters that run() declares."""

    names: frozenset[str]
    required: frozenset[str]
    takes_any: bool

    def takes(self, name: str) -> bool:
        """Whether run() can be given a parameter of this name."""
        return self.takes_any or name in self.names


def signature_of_caller() -> Signature | None:
    """The signature of run() in the module that is being imported; None where no caller defines one.

    A module asks for its parameters before run() exists, so its source is parsed. Nothing is executed.
    """
    frame = inspect.currentframe()
    while frame is not None:
        path = frame.f_globals.get("__file__")
        if frame.f_code.co_name == "<module>" and isinstance(path, str) and path != __file__:
            found = _signature_in(path)
            if found is not None:
                return found
        frame = frame.f_back
    return None


@cache
def _signature_in(path: str) -> Signature | None:
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run"]
    if not found:
        return None
    given = found[-1].args
    positional = [*given.posonlyargs, *given.args]
    optional = {one.arg for one in positional[len(positional) - len(given.defaults) :]}
    optional |= {one.arg for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is not None}
    names = frozenset(one.arg for one in (*positional, *given.kwonlyargs))
    return Signature(names=names, required=names - optional - {"device"}, takes_any=given.kwarg is not None)


def bound_names(rows: Sequence[Row], signature: Signature | None) -> list[str]:
    """The names that run() can be given, in the order in which rows have them."""
    standard = list(dict.fromkeys(name for row in rows for name in row.standard))
    if signature is None:
        return standard
    provenance = dict.fromkeys(name for row in rows for name in row.provenance)
    aliases = dict.fromkeys(name for row in rows for name in row.aliases if name in signature.names)
    return [name for name in dict.fromkeys([*standard, *provenance, *aliases]) if signature.takes(name)]


# --- The loader ---


_PROVENANCE = ("traced_source", "traced_machine_info", "config_hash")  # of one traced call, not of a combination


class MasterConfigLoader:
    """Reads traced configurations: a master JSON of any era, or a database of torchstone, a file or postgresql://...

    Where from, in this order: the database or the path given, `set_master_file_path`, $TTNN_MASTER_JSON_PATH,
    $TORCHSTONE_DB, torchstone.db in the current folder. `set_database_mode(True)` skips the two of JSON files.
    """

    master_path: ClassVar[str | None] = None
    _lead_models_only: ClassVar[bool | None] = None
    _use_database: ClassVar[bool] = False
    _mesh_filter: ClassVar[tuple[int, ...] | None] = None
    lead_models: ClassVar[tuple[str, ...]] = ("deepseek_v3",)  # parts of source names

    def __init__(self, master_file_path: str | Path | None = None, *, db: str | Path | None = None) -> None:
        given = db or master_file_path
        chosen = None if self._use_database else self.master_path or os.environ.get("TTNN_MASTER_JSON_PATH")
        self._is_default = not (given or chosen or os.environ.get("TORCHSTONE_DB"))
        self._address = str(given or chosen or os.environ.get("TORCHSTONE_DB") or "torchstone.db")
        self.master_file_path = self._address
        self._read_ops: dict[str, tuple[list[Entry], list[str]]] = {}

    def get_suite_parameters(
        self,
        operation_name: str,
        suite_name: str = "model_traced",  # noqa: ARG002 - every suite has the same configurations
        all_cases: bool = False,  # noqa: FBT001, FBT002 - called by position elsewhere
    ) -> dict[str, list[Any]]:
        """One key, all names joined by commas, with a tuple for each traced call; for all cases a list per name.

        All cases are combined freely, so where a call was traced is not among them. Names are those that run() of the
        calling module takes. An op that was never traced gives a suite without vectors, and a warning.
        """
        get_global_loader(self)
        signature = signature_of_caller()
        entries = self._filtered(operation_name)
        if not entries:
            _warn(self._missing(operation_name))
            return {name: list(values) for name, values in NOTHING_TRACED.items()}
        for number, entry in enumerate(entries):
            _NAMED[f"{operation_name}_traced_{number}"] = entry
        rows = _expressible(operation_name, rows_of(operation_name, entries), signature)
        names = bound_names(rows, signature)
        if signature is not None and (lacking := sorted(signature.required - set(names))):
            _warn(f"run() requires {', '.join(lacking)}, which no traced configuration of {operation_name} has")
        if all_cases:
            varied = [name for name in names if name not in _PROVENANCE]
            return {name: _distinct(row.get(name, ABSENT) for row in rows) for name in varied}
        return {",".join(names): [tuple(row.get(name, ABSENT) for name in names) for row in rows]}

    def entries(self, op: str) -> list[Entry]:
        """The traced configurations of an op; raises UnknownOpError where there is none."""
        found, _ = self._read(op)
        if not found:
            raise UnknownOpError(self._missing(op))
        return found

    def _missing(self, op: str) -> str:
        if self._is_default and not Path(self._address).is_file():
            return (
                f"no traced configurations of {op!r}: there is no {self._address}; set TTNN_MASTER_JSON_PATH to a "
                "master file, or TORCHSTONE_DB to the database that `torchstone trace` fills"
            )
        found, known = self._read(op)
        where = without_password(self._address)
        if found:
            return f"none of {many(len(found), 'configuration')} of {op!r} in {where} passes the filters that are set"
        near = get_close_matches(op, known, n=_MOST_NEAR, cutoff=0.3) or [name for name in known if op in name]
        meant = f"; near are {', '.join(near[:_MOST_NEAR])}" if near else ""
        return f"{where} has no configuration of {op!r} (tried {', '.join(spellings(op)[:4])}, ...){meant}"

    def _read(self, op: str) -> tuple[list[Entry], list[str]]:
        if op not in self._read_ops:
            self._read_ops[op] = self._read_now(op)
        return self._read_ops[op]

    def _read_now(self, op: str) -> tuple[list[Entry], list[str]]:
        if is_server(self._address):
            return read_database(self._address, op)
        path = Path(self._address)
        if not path.is_file():
            if self._is_default:
                return [], []
            msg = f"there is no {path}; give a master file, or the database that `torchstone trace` fills"
            raise FileNotFoundError(msg)
        return read_master(path, op) if path.suffix == ".json" else read_database(self._address, op)

    # --- Filters, for all loaders of a process, as tt-metal's generator sets them before it imports modules ---

    @classmethod
    def set_master_file_path(cls, path: str | None) -> None:
        """Read this master file or database; None: the usual ones."""
        MasterConfigLoader.master_path = path

    @classmethod
    def get_master_file_path(cls) -> str | None:
        """The path that was set."""
        return cls.master_path

    @classmethod
    def set_database_mode(cls, enabled: bool) -> None:  # noqa: FBT001 - as tt-metal calls it
        """Read the database ($TORCHSTONE_DB or torchstone.db) even where a master file is named."""
        MasterConfigLoader._use_database = enabled

    @classmethod
    def get_database_mode(cls) -> bool:
        """Whether the database is read."""
        return cls._use_database

    @classmethod
    def set_lead_models_filter(cls, enabled: bool) -> None:  # noqa: FBT001 - as tt-metal calls it
        """Only calls whose source names one of `lead_models`."""
        MasterConfigLoader._lead_models_only = enabled
        os.environ["TTNN_LEAD_MODELS_ONLY"] = "1" if enabled else "0"

    @classmethod
    def get_lead_models_filter(cls) -> bool:
        """Whether only lead models count."""
        if cls._lead_models_only is not None:
            return cls._lead_models_only
        return os.environ.get("TTNN_LEAD_MODELS_ONLY", "").lower() in ("1", "true", "yes")

    @classmethod
    def set_mesh_filter(cls, mesh_shape: Sequence[int] | None) -> None:
        """Only calls on a mesh of this shape, such as (2, 4); None: all."""
        MasterConfigLoader._mesh_filter = None if mesh_shape is None else tuple(mesh_shape)

    @classmethod
    def get_mesh_filter(cls) -> tuple[int, ...] | None:
        """The shape that was set."""
        return cls._mesh_filter

    def _filtered(self, op: str) -> list[Entry]:
        """The entries with those executions that pass the filters; all, without one."""
        found, _ = self._read(op)
        if not self.get_lead_models_filter() and self._mesh_filter is None:
            return found
        kept = []
        for entry in found:
            executions = [one for one in entry.executions if self._passes(one)]
            if executions:
                kept.append(replace(entry, executions=executions))
        return kept

    def _passes(self, execution: dict[str, object]) -> bool:
        source = str(execution.get("source", "")).lower()
        if self.get_lead_models_filter() and not any(name.lower() in source for name in self.lead_models):
            return False
        machine = execution.get("machine_info") or {}
        shape = machine.get("mesh_device_shape") if isinstance(machine, dict) else None
        return self._mesh_filter is None or tuple(shape or ()) == self._mesh_filter

    # --- Raw configurations and single values ---

    def get_operation_configs(self, operation_name: str) -> list[tuple[object, ...]]:
        """(arguments, source, machine_info) of each call, and its config_hash where files of 2026 have one."""
        return [one for entry in self._filtered(operation_name) for one in _raw(entry)]

    def get_raw_configurations(self, operation_name: str, max_configs: int = 10) -> list[tuple[object, ...]]:
        """The first of them."""
        return self.get_operation_configs(operation_name)[:max_configs]

    def convert_to_sweep_parameters(
        self, operation_name: str, max_configs: int = 50
    ) -> dict[str, dict[str, list[object]]]:
        """The distinct shapes, element types, layouts and memory configurations of the first configurations."""
        tensors = [one for entry in self._filtered(operation_name)[:max_configs] for one in tensors_of(entry)]
        if not tensors:
            return {}
        known = [tensor.properties() for tensor in tensors]
        lists = {
            "input_shapes": _distinct(iter([tensor.shape for tensor in tensors])),
            "input_dtypes": _distinct(one["dtype"] for one in known),
            "input_layouts": _distinct(one["layout"] for one in known),
            "input_memory_configs": _distinct(one["memory_config"] for one in known),
        }
        outputs = (output_memory_config(entry) for entry in self._filtered(operation_name)[:max_configs])
        return {"master_configs": {**lists, "output_memory_configs": _distinct(outputs)}}

    def get_traced_config(self, traced_config_name: str | None) -> dict[str, object] | None:
        """The values of a traced configuration by its name; None for a name that is not known."""
        return get_traced_config(traced_config_name)

    def parse_dtype(self, dtype_str: object) -> Any:
        """The function of the same name."""
        return parse_dtype(dtype_str)

    def parse_layout(self, layout_str: object) -> object:
        """The function of the same name."""
        return parse_layout(layout_str)

    def parse_memory_config(self, memory_config: object, tensor_shape: object = None) -> object:  # noqa: ARG002 - as known
        """`dict_to_memory_config`; the shape of the tensor is not needed."""
        return dict_to_memory_config(memory_config)


def _raw(entry: Entry) -> Iterator[tuple[object, ...]]:
    given: object = [{name: value} for name, value in entry.arguments.items()] if entry.is_list else entry.arguments
    for execution in entry.executions or [{}]:
        seen = (given, execution.get("source", "unknown"), execution.get("machine_info"))
        yield seen if entry.is_list else (*seen, entry.config_hash)


def _expressible(op: str, rows: list[Row], signature: Signature | None) -> list[Row]:
    """Without calls of a tensor and a number where run() has no parameter for the number."""
    if signature is None or signature.takes("scalar"):
        return rows
    kept = [row for row in rows if "scalar" not in row.standard]
    if len(kept) < len(rows):
        _warn(
            f"{len(rows) - len(kept)} of {many(len(rows), 'configuration')} of {op} have a "
            f"number in the place of the second "
            "tensor: add a parameter `scalar` to run() to get them"
        )
    return kept


def _distinct(values: Iterable[object]) -> list[object]:
    seen: dict[str, object] = {}
    for value in values:
        seen.setdefault(repr(value), value)
    return list(seen.values())


def _warn(text: str) -> None:
    warnings.warn(text, TracedConfigWarning, stacklevel=3)


# --- Functions that sweep modules import beside the loader ---

_NAMED: dict[str, Entry] = {}  # "add_traced_3" -> its configuration, as get_suite_parameters met it
_global: list[MasterConfigLoader] = []


def get_global_loader(instance: MasterConfigLoader | None = None) -> MasterConfigLoader:
    """The loader that was used last, or a new one; an instance that is given takes its place."""
    if instance is not None:
        _global[:] = [instance]
    if not _global:
        _global.append(MasterConfigLoader())
    return _global[0]


def load_master_configs_for_operation(operation_name: str, max_configs: int = 50) -> dict[str, dict[str, list[object]]]:
    """`convert_to_sweep_parameters` of a new loader."""
    return MasterConfigLoader().convert_to_sweep_parameters(operation_name, max_configs)


def get_master_configs_raw(operation_name: str, max_configs: int = 10) -> list[tuple[object, ...]]:
    """`get_raw_configurations` of a new loader."""
    return MasterConfigLoader().get_raw_configurations(operation_name, max_configs)


def get_traced_config(traced_config_name: str | None) -> dict[str, object] | None:
    """Shape, dtype, layout and memory configurations of a traced configuration; of two tensors with _a and _b."""
    entry = _NAMED.get(traced_config_name or "")
    if entry is None:
        return None
    tensors = tensors_of(entry)
    is_binary = len(tensors) >= BINARY
    found: dict[str, object] = {"is_binary": is_binary, "output_memory_config": output_memory_config(entry)}
    for letter, tensor in zip(LETTERS, tensors, strict=False):
        end = f"_{letter}" if is_binary else ""
        found |= {f"{what}{end}": value for what, value in {"shape": tensor.shape, **tensor.properties()}.items()}
    execution = entry.executions[0] if entry.executions else {}
    seen = {"traced_source": execution.get("source"), "traced_machine_info": execution.get("machine_info")}
    return found | seen


def unpack_traced_config(traced_config_name: str, use_defaults: bool = False) -> tuple[object, ...]:  # noqa: FBT001, FBT002 - as known
    """Shape, dtype, layout, memory configuration of the input and of the output, of a call with one tensor."""
    entry = _NAMED.get(traced_config_name)
    if entry is None and use_defaults:
        return _defaults(1)
    known = get_traced_config(traced_config_name)
    if entry is None or known is None or len(tensors_of(entry)) != 1:
        return (None,) * 5
    return tuple(known[name] for name in ("shape", "dtype", "layout", "memory_config", "output_memory_config"))


def unpack_binary_traced_config(traced_config_name: str, use_defaults: bool = False) -> tuple[object, ...]:  # noqa: FBT001, FBT002 - as known
    """Both shapes, then dtypes, layouts and memory configurations in pairs, of a call with two tensors."""
    entry = _NAMED.get(traced_config_name)
    if entry is None and use_defaults:
        return _defaults(BINARY)
    known = get_traced_config(traced_config_name)
    if entry is None or known is None or len(tensors_of(entry)) != BINARY:
        return (None,) * 7
    pairs = [known[f"{what}_{letter}"] for what in ("dtype", "layout", "memory_config") for letter in "ab"]
    return ({"self": known["shape_a"], "other": known["shape_b"]}, *pairs)


def _defaults(tensors: int) -> tuple[object, ...]:
    """What is given to those who ask for defaults instead of a configuration that is not there."""
    shape, dtype, layout = [1, 32, 32], parse_dtype("DataType.BFLOAT16"), parse_layout("Layout.TILE")
    memory = dict_to_memory_config(
        {"memory_layout": "TensorMemoryLayout.INTERLEAVED", "buffer_type": "BufferType.DRAM"}
    )
    if tensors == 1:
        return shape, dtype, layout, memory, memory
    return {"self": shape, "other": list(shape)}, dtype, dtype, layout, layout, memory, memory

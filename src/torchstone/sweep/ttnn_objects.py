"""Traced values -> what a sweep module works with: ttnn's objects where ttnn can be imported, torch's and plain ones.

Nothing is put in the place of a value that cannot be read: it stays what it is, or the function raises ValueError. A
ttnn that lacks a class (a stub with enum names) gives the description itself. Needs the standard library alone.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

_TORCH_DTYPES = {
    "BFLOAT16": "bfloat16",
    "FLOAT32": "float32",
    "INT32": "int32",
    "UINT32": "uint32",
    "UINT16": "uint16",
    "UINT8": "uint8",
}
_NUMBERS = re.compile(r"-?\d+")
_SPECIAL_FLOATS = {"inf": "inf", "Infinity": "inf", "-inf": "-inf", "-Infinity": "-inf", "nan": "nan", "NaN": "nan"}
_NO_VALUE = (None, "", "None", "nullopt", "std::nullopt")


def ttnn_module() -> Any:
    """The ttnn of this environment; None where there is none."""
    return sys.modules["ttnn"] if "ttnn" in sys.modules else _imported("ttnn")


@cache
def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, OSError):  # OSError: a shared library of it is missing
        return None


def last_part(text: object) -> str:
    """BFLOAT16 from DataType::BFLOAT16 or DataType.BFLOAT16."""
    return str(text).replace("::", ".").rpartition(".")[2]


# --- Enums and scalars ---


def parse_dtype(value: object) -> Any:
    """An element type: ttnn's own where ttnn is there, torch's else; the name where neither has it. Objects stay."""
    if not isinstance(value, str):
        return value
    name = last_part(value)
    found = getattr(ttnn_module(), name.lower(), None)
    if found is not None:
        return found
    torch = _imported("torch")
    found = getattr(torch, _TORCH_DTYPES.get(name.upper(), name), None)
    return found if torch is not None and isinstance(found, torch.dtype) else name


def parse_layout(value: object) -> object:
    """TILE or ROW_MAJOR as ttnn's constant, or as text. Objects stay."""
    if not isinstance(value, str):
        return value
    name = last_part(value).removesuffix("_LAYOUT")
    return getattr(ttnn_module(), f"{name}_LAYOUT", name)


def parse_special_float(value: object) -> object:
    """The numbers that JSON has no word for, from their texts."""
    return float(_SPECIAL_FLOATS[value]) if isinstance(value, str) and value in _SPECIAL_FLOATS else value


_ENUMS = ("Topology", "SigmoidMode", "TensorMemoryLayout", "ShardOrientation")


def parse_enum_value(value: object) -> object:
    """`{"type": "DataType", "repr": ...}` and its like as ttnn's constants; other descriptions stay as they are."""
    if not isinstance(value, Mapping):
        return value
    kind, text = value.get("type"), value.get("repr") or value.get("value") or ""
    if kind in ("DataType", "dtype"):
        return parse_dtype(text)
    if kind == "Layout":
        return parse_layout(text)
    if kind in _ENUMS:
        return getattr(getattr(ttnn_module(), kind, None), last_part(text), value)
    return value


# --- Memory configurations ---


def is_memory_config(value: object) -> bool:
    """Whether a value describes a memory configuration."""
    return isinstance(value, Mapping) and (
        "MemoryConfig" in value or ("memory_layout" in value and "buffer_type" in value)
    )


def dict_to_memory_config(value: object) -> Any:
    """A memory configuration: ttnn's object where ttnn is there, a dictionary else; objects and None stay."""
    if not isinstance(value, Mapping):
        return value
    description = value.get("MemoryConfig", value)
    if isinstance(description.get("data"), Mapping):  # as vector files have it
        description = description["data"]
    ttnn = ttnn_module()
    if "memory_layout" not in description or not hasattr(ttnn, "MemoryConfig"):
        return {name: part for name, part in description.items() if name != "hash"}  # known to its process alone
    memory_layout = _constant(ttnn, "TensorMemoryLayout", description["memory_layout"])
    buffer_type = _constant(ttnn, "BufferType", description["buffer_type"])
    shards = _shards_of(description)
    if shards is None or not hasattr(ttnn, "ShardSpec"):
        return ttnn.MemoryConfig(memory_layout, buffer_type)
    return ttnn.MemoryConfig(memory_layout, buffer_type, _shard_spec(ttnn, shards))


def _constant(ttnn: object, enum: str, text: object) -> object:
    """A member of an enum, by its name or by its number."""
    name = last_part(text)
    members = getattr(ttnn, enum)
    if not hasattr(members, name):
        msg = f"ttnn.{enum} has no {text!r}"
        raise ValueError(msg)
    return getattr(members, name)


def _shards_of(description: Mapping[str, object]) -> Mapping[str, object] | None:
    shards = description.get("shard_spec")
    if isinstance(shards, Mapping):
        return shards
    spread = description.get("nd_shard_spec")
    return {**spread, "shape": spread["shard_shape"]} if isinstance(spread, Mapping) and "grid" in spread else None


def _shard_spec(ttnn: Any, description: Mapping[str, Any]) -> object:
    shape = description["shape"]
    shape = [int(one) for one in _NUMBERS.findall(shape)] if isinstance(shape, str) else list(shape)
    text = last_part(description["orientation"])
    orientation = _constant(ttnn, "ShardOrientation", {"0": "ROW_MAJOR", "1": "COL_MAJOR"}.get(text, text))
    return ttnn.ShardSpec(_core_range_set(ttnn, _ranges(description["grid"])), shape, orientation)


def _core_range_set(ttnn: Any, ranges: Iterable[tuple[tuple[int, int], tuple[int, int]]]) -> object:
    made = [ttnn.CoreRange(ttnn.CoreCoord(*first), ttnn.CoreCoord(*last)) for first, last in ranges]
    return ttnn.CoreRangeSet(made)  # a list: kernels on sharded DRAM depend on the order of the ranges


def _ranges(grid: Any) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Ranges of cores: {"start", "end"} each, or corners in pairs, alone or in lists of their own."""
    if grid and isinstance(grid[0], Mapping) and "start" in grid[0]:
        corners = [(one["start"], one["end"]) for one in grid]
    elif grid and isinstance(grid[0], Mapping):
        corners = list(zip(grid[::2], grid[1::2], strict=True))
    else:
        corners = [(one[0], one[1]) for one in grid]
    return [(_point(first), _point(last)) for first, last in corners]


def _point(description: Mapping[str, Any]) -> tuple[int, int]:
    return int(description["x"]), int(description["y"])


# --- Core grids, compute kernel and program configurations ---

_GRID_TEXT = re.compile(r"x\s*=\s*(\d+)\D+y\s*=\s*(\d+)")
_DASHED = re.compile(r"\[?\(?(\d+)-(\d+)\)?\]?")
_RANGE_TEXT = re.compile(r"\[(\d+)-(\d+)\s*-\s*(\d+)-(\d+)\]")
_FIELD_TEXT = re.compile(r"(\w+)\s*=\s*(\{[^}]*\}|\([^)]*\)|[^,()]+)")
_MATMUL = ("in0_block_w", "out_subblock_h", "out_subblock_w", "per_core_M", "per_core_N")
_GRID = "compute_with_storage_grid_size"
_BLOCKS = ("out_block_h", "out_block_w")
_DRAM_SHARDED = ("in0_block_w", "per_core_M", "per_core_N", "fused_activation")
_FIELDS: dict[str, tuple[str, ...]] = {  # what the constructors of program configurations take
    "MatmulMultiCoreReuseProgramConfig": (_GRID, *_MATMUL),
    "MatmulMultiCoreReuseMultiCastProgramConfig": (
        _GRID, *_MATMUL, *_BLOCKS, "transpose_mcast", "fused_activation", "fuse_batch",
    ),
    "MatmulMultiCoreReuseMultiCast1DProgramConfig": (
        _GRID, *_MATMUL, *_BLOCKS, "fuse_batch", "fused_activation", "mcast_in0", "untilize_out", "gather_in0",
        "hop_cores",
    ),
    "MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig": _DRAM_SHARDED,
    "MatmulMultiCoreReuseMultiCastBatchedDRAMShardedProgramConfig": _DRAM_SHARDED,
    "SDPAProgramConfig": (
        _GRID, "q_chunk_size", "k_chunk_size", "exp_approx_mode", "sub_core_grids", "max_cores_per_head_batch",
    ),
    "LayerNormDefaultProgramConfig": (),
    "LayerNormShardedMultiCoreProgramConfig": (
        _GRID, "subblock_w", "block_h", "block_w", "inplace", "legacy_reduction", "legacy_rsqrt", "use_welford",
    ),
    "SoftmaxDefaultProgramConfig": (),
    "SoftmaxShardedMultiCoreProgramConfig": (_GRID, "subblock_w", "block_h", "block_w"),
}  # fmt: skip
_SWITCHES = frozenset(
    {
        "transpose_mcast", "fuse_batch", "mcast_in0", "untilize_out", "gather_in0", "exp_approx_mode", "inplace",
        "legacy_reduction", "legacy_rsqrt", "use_welford",
    }
)  # fmt: skip
_KERNEL_SWITCHES = ("math_approx_mode", "fp32_dest_acc_en", "packer_l1_acc", "dst_full_sync_en")


def dict_to_core_grid(value: object) -> Any:
    """`{"type": "CoreGrid", "value": "ttnn.CoreGrid(x=8, y=7)"}` or its text as an object; objects and None stay."""
    text = str(value.get("value", "")) if isinstance(value, Mapping) else value
    ttnn = ttnn_module()
    if not isinstance(text, str) or not hasattr(ttnn, "CoreGrid"):
        return value
    found = _GRID_TEXT.search(text)
    if found is None:
        msg = f"{text!r} does not name a core grid"
        raise ValueError(msg)
    return ttnn.CoreGrid(y=int(found[2]), x=int(found[1]))


def dict_to_compute_kernel_config(value: object) -> Any:
    """A description with `math_fidelity` as ttnn.WormholeComputeKernelConfig; objects and None stay."""
    if not isinstance(value, Mapping):
        return value
    description = value.get("WormholeComputeKernelConfig", value)
    ttnn = ttnn_module()
    if not hasattr(ttnn, "WormholeComputeKernelConfig"):
        return dict(description)
    given: dict[str, object] = {name: _switch(description[name]) for name in _KERNEL_SWITCHES if name in description}
    if description.get("math_fidelity") not in _NO_VALUE:
        given["math_fidelity"] = _constant(ttnn, "MathFidelity", description["math_fidelity"])
    return ttnn.WormholeComputeKernelConfig(**given)


def dict_to_program_config(
    value: object, input_b_memory_config: object = None, input_a_memory_config: object = None
) -> Any:
    """A program configuration, by the type that it names or else by its fields; objects and None stay.

    Raises ValueError for a description of a class that is not known here.
    """
    if not isinstance(value, Mapping):
        return value
    kind, fields = _program_fields(value)
    kind = kind or _matmul_kind(fields, input_a_memory_config, input_b_memory_config)
    if kind not in _FIELDS:
        msg = f"not a known program configuration: {kind or ', '.join(fields) or value}"
        raise ValueError(msg)
    ttnn = ttnn_module()
    if not hasattr(ttnn, kind):
        return dict(value)
    given = {name: _program_value(ttnn, name, fields[name]) for name in _FIELDS[kind] if _is_given(fields, name)}
    return getattr(ttnn, kind)(**given)


def _program_fields(value: Mapping[str, Any]) -> tuple[str, dict[str, object]]:
    """Class name and fields: named in the description, written in one line, or the layout of 2025."""
    if isinstance(value.get("value"), str):
        text = value["value"]
        kind = next((name for name in _FIELDS if name in text or name == value.get("type")), str(value.get("type")))
        return kind, dict(_FIELD_TEXT.findall(text.partition("(")[2]))
    nested = next((name for name in value if name in _FIELDS), None)
    fields = dict(value[nested]) if nested is not None else dict(value)
    if "compute_grid" in fields:
        fields.setdefault(_GRID, fields["compute_grid"])
    return nested or str(fields.pop("type", "") or ""), fields


def _matmul_kind(fields: Mapping[str, object], memory_a: object, memory_b: object) -> str:
    """The class of an early description without a type."""
    if not {"in0_block_w", "per_core_M", "per_core_N"} <= fields.keys():
        return ""
    if _is_given(fields, _GRID):
        if "transpose_mcast" in fields:
            return "MatmulMultiCoreReuseMultiCastProgramConfig"
        one = "fuse_batch" in fields
        return "MatmulMultiCoreReuseMultiCast1DProgramConfig" if one else "MatmulMultiCoreReuseProgramConfig"
    is_sharded = "SHARDED" in str(memory_a) and "SHARDED" in str(memory_b) and "DRAM" in str(memory_b)
    return "MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig" if is_sharded else ""


def _is_given(fields: Mapping[str, object], name: str) -> bool:
    value = fields.get(name)
    return not (value is None or (isinstance(value, str) and value in _NO_VALUE))


def _program_value(ttnn: Any, name: str, value: Any) -> object:
    if name == _GRID:
        return ttnn.CoreCoord(*_grid_size(value))
    if name in ("hop_cores", "sub_core_grids"):
        if isinstance(value, str):
            ranges = [((int(a), int(b)), (int(c), int(d))) for a, b, c, d in _RANGE_TEXT.findall(value)]
        else:
            ranges = _ranges(value)
        return _core_range_set(ttnn, ranges)
    if name == "fused_activation" and isinstance(value, Mapping) and "op_type" in value:
        parameters = value.get("param") or []
        return ttnn.UnaryWithParam(ttnn.UnaryOpType(int(value["op_type"])), *(float(one) for one in parameters[:1]))
    if name in _SWITCHES:
        return _switch(value)
    return int(value) if isinstance(value, str) and value.strip().isdigit() else value


def _grid_size(value: object) -> tuple[int, int]:
    if isinstance(value, Mapping):
        return _point(value)
    if isinstance(value, list | tuple):
        return int(value[0]), int(value[1])
    found = _GRID_TEXT.search(str(value)) or _DASHED.fullmatch(str(value).strip())
    if found is None:
        msg = f"{value!r} is not a size of a core grid"
        raise ValueError(msg)
    return int(found[1]), int(found[2])


def _switch(value: object) -> bool:
    """True or False from the texts that tracers write for them."""
    return value if isinstance(value, bool) else str(value).strip().lower() not in ("false", "0", "none", "")

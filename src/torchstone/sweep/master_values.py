"""Traced values -> what a sweep module works with: ttnn objects where ttnn can be imported, torch and plain ones else.

Nothing is put in the place of a value that cannot be read: it stays as its text, or the caller hears of it.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Mapping
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


class Tensor:
    """A traced tensor, whichever tool wrote it."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        inner = told.get("Tensor")
        if isinstance(inner, Mapping):  # the layout of 2025
            spec = inner["tensor_spec"]
            layout = spec["tensor_layout"]
            self.shape = list(spec["logical_shape"])
            self.dtype, self.memory_config = layout["dtype"], layout.get("memory_config")
            self.layout, self.storage_type = inner.get("layout"), inner.get("storage_type")
            self.placement = None
        elif "original_shape" in told:
            self.shape = list(told["original_shape"])
            self.dtype, self.memory_config = told["original_dtype"], told.get("memory_config")
            self.layout, self.storage_type = told.get("layout"), told.get("storage_type")
            self.placement = told.get("tensor_placement")
        else:  # a tensor of PyTorch
            self.shape = list(told["shape"])
            self.dtype = told["dtype"]
            self.memory_config = {"stride": told.get("stride"), "storage_offset": told.get("storage_offset", 0)}
            self.layout, self.storage_type, self.placement = (
                told.get("layout", "strided"),
                told.get("device", "cpu"),
                None,
            )


def tensor_in(value: Any) -> Tensor | None:
    """The tensor that a value describes; None if it is none."""
    if not isinstance(value, Mapping):
        return None
    is_tensor = "Tensor" in value or "original_shape" in value or value.get("type") == "tensor"
    return Tensor(value) if is_tensor else None


def dtype_of(text: Any) -> Any:
    """An element type: ttnn's own where ttnn is there, torch's else; the text where torch has none."""
    name = _last_part(text)
    ttnn = _ttnn()
    if ttnn is not None and hasattr(ttnn, name.lower()):
        return getattr(ttnn, name.lower())
    torch = _torch()
    found = getattr(torch, _TORCH_DTYPES.get(name, name), None) if torch is not None else None
    return found if found is not None else name


def layout_of(text: Any) -> Any:
    """TILE or ROW_MAJOR as ttnn's constant, or as text."""
    if text is None:
        return None
    name = _last_part(text)
    ttnn = _ttnn()
    return getattr(ttnn, f"{name}_LAYOUT", name) if ttnn is not None else name


def memory_config_of(told: Any) -> Any:
    """A memory configuration: ttnn's object where ttnn is there, a plain dictionary else."""
    if not isinstance(told, Mapping):
        return told
    told = told.get("MemoryConfig", told)
    ttnn = _ttnn()
    if ttnn is None or "memory_layout" not in told:
        return _clean(told)
    memory_layout = getattr(ttnn.TensorMemoryLayout, _last_part(told["memory_layout"]))
    buffer_type = getattr(ttnn.BufferType, _last_part(told["buffer_type"]))
    shards = told.get("shard_spec")
    if not isinstance(shards, Mapping):
        return ttnn.MemoryConfig(memory_layout, buffer_type)
    return ttnn.MemoryConfig(memory_layout, buffer_type, _shard_spec(ttnn, shards))


def plain_value(value: Any) -> Any:
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


def _shard_spec(ttnn: Any, told: Mapping[str, Any]) -> Any:
    ranges = [
        ttnn.CoreRange(ttnn.CoreCoord(*_point(first)), ttnn.CoreCoord(*_point(last)))
        for first, last in _ranges(told["grid"])
    ]
    shape = told["shape"]
    shape = [int(one) for one in _NUMBERS.findall(shape)] if isinstance(shape, str) else list(shape)
    orientation = getattr(ttnn.ShardOrientation, _last_part(told["orientation"]))
    return ttnn.ShardSpec(ttnn.CoreRangeSet(set(ranges)), shape, orientation)


def _ranges(grid: Any) -> list[tuple[Any, Any]]:
    """Ranges of cores: {"start", "end"} each, or corners in pairs, alone or in lists of their own."""
    if grid and isinstance(grid[0], Mapping) and "start" in grid[0]:
        return [(one["start"], one["end"]) for one in grid]
    if grid and isinstance(grid[0], Mapping):
        return list(zip(grid[::2], grid[1::2], strict=True))
    return [(one[0], one[1]) for one in grid]


def _point(told: Mapping[str, Any]) -> tuple[int, int]:
    return int(told["x"]), int(told["y"])


def _clean(told: Mapping[str, Any]) -> dict[str, Any]:
    """Without the numbers that only the process knew that wrote them."""
    return {name: part for name, part in told.items() if name != "hash"}


def _last_part(text: Any) -> str:
    return str(text).replace("::", ".").rpartition(".")[2]


@cache
def _ttnn() -> Any:
    return importlib.import_module("ttnn") if importlib.util.find_spec("ttnn") else None


@cache
def _torch() -> Any:
    return importlib.import_module("torch") if importlib.util.find_spec("torch") else None

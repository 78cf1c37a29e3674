"""The device of this process, opened once; which board it is, the environment variables and the set-up say."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchstone.backends.ttnn.boards import L1_SMALL_BYTES

_FABRIC = "FABRIC_1D"


@dataclass
class _Opened:
    """What this process was set up with, and its device once a call needed it."""

    mesh: tuple[int, int] = (1, 1)
    l1_small_bytes: int = L1_SMALL_BYTES
    fabric: bool = False
    device: Any = None
    facts: dict[str, Any] = field(default_factory=dict)


_opened = _Opened()


def set_up(payload: Mapping[str, Any]) -> None:
    """Import ttnn; no device is opened before a fork, since two processes would share the names of its files."""
    import ttnn

    rows, columns = payload.get("mesh") or (1, 1)
    _opened.mesh = (int(rows), int(columns))
    _opened.fabric = rows * columns > 1
    _opened.l1_small_bytes = int(payload.get("l1_small_bytes") or L1_SMALL_BYTES)
    _opened.device = None
    # ttnn writes files about the fabric and its own logs to the current folder
    os.chdir(tempfile.gettempdir())
    ttnn.CONFIG.enable_logging = False


def open_device() -> Any:
    """The device or mesh of this process."""
    if _opened.device is None:
        import ttnn

        if _opened.fabric:
            ttnn.set_fabric_config(getattr(ttnn.FabricConfig, _FABRIC))
        _opened.device = ttnn.open_mesh_device(
            mesh_shape=ttnn.MeshShape(*_opened.mesh), l1_small_size=_opened.l1_small_bytes
        )
    return _opened.device


def close_device() -> None:
    """Give the device back; an error while closing says nothing about the calls before it."""
    if _opened.device is not None:
        import ttnn

        with contextlib.suppress(RuntimeError):
            ttnn.close_mesh_device(_opened.device)
        _opened.device = None


def describe_device(_payload: Mapping[str, object]) -> dict[str, Any]:
    """Open the device and say what it is: its mesh, cores, banks and memory, and whether it accepts a small op."""
    import ttnn

    device = open_device()
    grid, banks = device.compute_with_storage_grid_size(), device.dram_grid_size()
    view = ttnn.get_memory_view(device, ttnn.BufferType.L1)
    tensor = ttnn.allocate_tensor_on_device(
        ttnn.Shape([1, 1, 32, 32]), ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG
    )
    ttnn.add(tensor, tensor)
    return {
        "arch": str(device.arch()).rpartition(".")[2].lower(),
        "chips": device.get_num_devices(),
        "cores": [grid.x, grid.y],
        "dram_banks": banks.x * banks.y,
        "l1_bank_bytes": int(view.total_bytes_per_bank),
        "dram_bank_bytes": int(ttnn.get_memory_view(device, ttnn.BufferType.DRAM).total_bytes_per_bank),
    }

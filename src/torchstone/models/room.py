"""Whether a model fits in the memory that is free here, asked before it is built with values."""

import os
from pathlib import Path

from torch import nn

from torchstone.units import show_bytes

_MEMORY_INFO = Path("/proc/meminfo")
_FOR_ACTIVATIONS = 1.25  # weights are not all that a run needs


def why_no_room(model: nn.Module) -> str:
    """Why the weights of a model cannot be held here; empty where they can, or where nobody knows."""
    needed = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    free = free_bytes()
    if free is None or needed * _FOR_ACTIVATIONS <= free:
        return ""
    return f"{show_bytes(needed)} of weights do not fit in the {show_bytes(free)} that are free here (try --layers 2)"


def free_bytes() -> int | None:
    """Memory that can be had without pushing anything out; None where the system does not say."""
    if _MEMORY_INFO.is_file():
        for line in _MEMORY_INFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None

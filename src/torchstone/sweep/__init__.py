"""Configurations -> vectors -> how each ends on a backend."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchstone.sweep.master_config_loader import (
        MasterConfigLoader,
        unpack_binary_traced_config,
        unpack_traced_config,
    )

__all__ = ["MasterConfigLoader", "unpack_binary_traced_config", "unpack_traced_config"]


def __getattr__(name: str) -> object:
    """Import the loader only when a sweep module asks for it."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from torchstone.sweep import master_config_loader

    found: object = getattr(master_config_loader, name)
    return found

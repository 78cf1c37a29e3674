"""Configurations -> vectors -> how each ends on a backend."""

from typing import Any

__all__ = ["MasterConfigLoader", "unpack_binary_traced_config", "unpack_traced_config"]


def __getattr__(name: str) -> Any:
    """Import the loader only when a sweep module asks for it."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from torchstone.sweep import master_config_loader

    return getattr(master_config_loader, name)

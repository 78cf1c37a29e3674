"""A runtime log -> MemoryTimeline."""

from typing import Any

__all__ = ["parse_log"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from torchstone.memory import read_log

        return getattr(read_log, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)

"""A runtime log -> MemoryTimeline."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchstone.memory.read_log import parse_log

__all__ = ["parse_log"]


def __getattr__(name: str) -> object:
    """Import the parser only when a log is read."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from torchstone.memory import read_log

    return getattr(read_log, name)

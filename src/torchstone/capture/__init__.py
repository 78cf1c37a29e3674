"""Model + inputs -> Trace."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchstone.capture.capture_model import capture

__all__ = ["capture"]


def __getattr__(name: str) -> Any:
    """Import torch only when a capture is asked for."""
    if name == "capture":
        from torchstone.capture.capture_model import capture

        return capture
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)

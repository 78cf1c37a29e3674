"""Trace x backend -> CheckResult, from the root of the module tree down to the op to blame."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchstone.check.checking import check as check

__all__ = ["check"]


def __getattr__(name: str) -> Any:
    """Import the parent's side only when it is asked for: children import this package, too."""
    if name == "check":
        from torchstone.check.checking import check

        return check
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)

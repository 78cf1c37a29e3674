"""Trace x backend -> CheckResult, from the root of the module tree down to the op that fails."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchstone.workflows.check import check_model as check

__all__ = ["check"]


def __getattr__(name: str) -> object:
    """Resolve `check`, an alias of `torchstone.check_model` for programs written against earlier releases.

    A check of a named model captures it, so its function is a workflow: this import is the one exception that the
    layers allow, and it runs only where the name is used, never in a child.
    """
    if name == "check":
        from torchstone.workflows.check import check_model

        return check_model
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)

"""Module class -> what one call of it costs, as a formula."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchstone.formula.database.compute import compute_flops, compute_memory

__all__ = ["compute_flops", "compute_memory"]


def __getattr__(name: str) -> object:
    """Load a function when it is first used: the language of formulas takes longer to import than the database."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from torchstone.formula.database import compute

    return getattr(compute, name)

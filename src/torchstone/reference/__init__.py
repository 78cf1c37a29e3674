"""Model + inputs -> golden data, and golden data x candidate -> verdicts."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchstone.reference.compare_port import compare
    from torchstone.reference.golden_files import load_golden
    from torchstone.reference.make import make_golden

__all__ = ["compare", "load_golden", "make_golden"]

_MODULES = {"compare": "compare_port", "load_golden": "golden_files", "make_golden": "make"}


def __getattr__(name: str) -> object:
    """Import torch only when it is needed."""
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

"""A model name -> a model and example inputs for it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchstone.models.load_model import InputOptions, Inputs, Loaded, describe_source, load

__all__ = ["InputOptions", "Inputs", "Loaded", "describe_source", "load"]


def __getattr__(name: str) -> object:
    """Import the loader only when it is used: the zoo can be listed where no torch is installed."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from torchstone.models import load_model

    return getattr(load_model, name)

"""Deprecated: import these names from `torchstone.backends`."""

from torchstone.backends.deprecation import warn_moved
from torchstone.backends.protocol import first_line, without_gradients

__all__ = ["first_line", "without_gradients"]
warn_moved(__name__, __all__)

"""Deprecated: import these names from `torchstone.backends`."""

from torchstone.backends.deprecation import warn_moved
from torchstone.backends.lookup import open_backend

__all__ = ["open_backend"]
warn_moved(__name__, __all__)

"""Deprecated: import these names from `torchstone.backends`."""

from torchstone.backends.deprecation import warn_moved
from torchstone.backends.protocol import availability_of, installed

__all__ = ["availability_of", "installed"]
warn_moved(__name__, __all__)

"""Deprecated: import these names from `torchstone.backends`."""

from torchstone.backends.deprecation import warn_moved
from torchstone.numerics.verdict import judge

__all__ = ["judge"]
warn_moved(__name__, __all__)

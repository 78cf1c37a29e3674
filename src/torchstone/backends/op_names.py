"""Deprecated: import these names from `torchstone.backends`."""

from torchstone.backends.deprecation import warn_moved
from torchstone.backends.op_info import ops_called, ops_named_in, with_overloads

__all__ = ["ops_called", "ops_named_in", "with_overloads"]
warn_moved(__name__, __all__)

"""The warning of modules that moved."""

import warnings
from collections.abc import Sequence


def warn_moved(module: str, names: Sequence[str]) -> None:
    """Tell whoever imports an old module path where its names are now; called by the old module itself."""
    msg = f"{module} will be removed in the next release; use `from torchstone.backends import {', '.join(names)}`"
    warnings.warn(msg, DeprecationWarning, stacklevel=3)

"""Deprecated: import these names from `torchstone.backends`."""

from torchstone.backends.deprecation import warn_moved
from torchstone.backends.export import Exported, converting, exported_program, import_exporter

__all__ = ["Exported", "converting", "exported_program", "import_exporter"]
warn_moved(__name__, __all__)

"""A folder that, first on PYTHONPATH, puts torchstone's loader in the place of tt-metal's."""

from pathlib import Path

import torchstone
from torchstone.record.codec import write_atomically
from torchstone.workflows.result_folder import writing_to

_SHIM = '''"""torchstone's loader in the place of tt-metal's; written by `torchstone sweep shim`."""

import importlib.util
import sys

if importlib.util.find_spec("torchstone") is None:
    sys.path.append({place!r})

from torchstone.compat.sweep_framework.{name} import *
'''
_MODULES = ("master_config_loader", "master_config_loader_v2")


def write_shim(folder: Path) -> tuple[Path, ...]:
    """Write the modules below a folder; raises InputError for a folder that cannot be written."""
    place = str(Path(torchstone.__file__).resolve().parents[1])
    paths = tuple(folder / "tests" / "sweep_framework" / f"{name}.py" for name in _MODULES)
    with writing_to(folder, "DIR"):
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, _SHIM.format(place=place, name=path.stem).encode())
    return paths

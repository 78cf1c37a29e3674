"""Real traces and master files, where they lie beside the project; they are never part of it."""

import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent.parent


def real_file(name: str) -> Path:
    """A real file; the test is skipped where there is none."""
    given = os.environ.get("TORCHSTONE_SAMPLES")
    folders = [Path(given)] if given else [parent / "shared" / "data" for parent in _ROOT.parents]
    found = next((folder / name for folder in folders if (folder / name).exists()), None)
    if found is None:
        pytest.skip(f"no real {name} here; TORCHSTONE_SAMPLES can name a folder that has it")
    return found

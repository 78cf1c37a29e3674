"""The whole table: torchstone's own rules, and those of the user's files. Needs the standard library alone."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from torchstone.mapping.table import Mapping, known_mappings


def all_mappings() -> dict[str, Mapping]:
    """The whole table."""
    load_rules()
    return known_mappings()


def load_rules(files: Sequence[str] = ()) -> None:
    """Import torchstone's own rules, which register themselves, then execute those of the user's files."""
    from torchstone.mapping.rules import (  # noqa: F401 - the imports register
        indexing,
        layers,
        matmul,
        pointwise,
        reductions,
        views,
    )

    for number, file in enumerate(files):
        spec = spec_from_file_location(f"mapping_rules_{number}", Path(file))
        if spec is None or spec.loader is None:
            msg = f"{file} is not a Python file with mappings"
            raise ValueError(msg)
        spec.loader.exec_module(module_from_spec(spec))

"""What was asked of a check."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Any

from torchstone.check.tolerances import Tolerances
from torchstone.record.base import Record
from torchstone.record.task import Limits


class Granularity(StrEnum):
    """How far down a check goes."""

    OP = "op"
    MODULE = "module"


class Settings(Record, frozen=True, kw_only=True):
    """One backend, and how to go about it."""

    backend: str
    options: dict[str, Any] = {}
    version: str = ""  # of the backend, as it says itself
    forks: bool = True  # whether the backend's process may be forked
    python: str | None = None  # another interpreter; None: this one
    jobs: int = 2
    limits: Limits = Limits(deadline_s=120.0)
    tolerances: Tolerances = Tolerances()
    granularity: Granularity = Granularity.OP
    only: str = ""
    max_depth: int | None = None
    exports_ir: bool = True
    reuse: str = ""  # a file of results that models share; "" for none
    most_bisecting_runs: int = 60
    most_shrinking_runs: int = 20

    @property
    def backend_payload(self) -> dict[str, Any]:
        """The backend as children open it."""
        return {"spec": self.backend, "options": self.options}


class Folder(Record, frozen=True, kw_only=True):
    """Where a check keeps what; results at the top, what only a resumed run needs in `check_work`."""

    path: Path

    @property
    def work(self) -> Path:
        """What is needed to go on, and by some of the scripts."""
        return self.path / "check_work"

    @property
    def trace(self) -> Path:
        """The capture."""
        return self.path / "trace.json"

    @property
    def unique_modules(self) -> Path:
        """Every unique module with its status."""
        return self.path / "unique_modules.json"

    @property
    def result(self) -> Path:
        """Everything that was found."""
        return self.path / "check.json"

    @property
    def summary(self) -> Path:
        """What to fix first, for people."""
        return self.path / "summary.md"

    @property
    def journal(self) -> Path:
        """Every answer, the moment it was there."""
        return self.work / "journal.jsonl"

    @property
    def about(self) -> Path:
        """What the journal belongs to."""
        return self.work / "about.json"

    @property
    def values(self) -> Path:
        """Tensors of the recorded run."""
        return self.work / "values"

    @property
    def kept(self) -> Path:
        """Written when all values are there."""
        return self.work / "kept.json"

    def values_of(self, row: int) -> Path:
        """The tensors of one module call."""
        return self.values / f"call_{row:05}.safetensors"

    def program_of(self, row: int) -> Path:
        """The ops of one module call."""
        return self.work / "programs" / f"call_{row:05}.json"

    def stage_of(self, name: str) -> Path:
        """How far a task came."""
        return self.work / "stages" / name.replace("/", "_").replace(":", "_")


def shared_results() -> Path:
    """The file of results that models share, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "torchstone" / "check" / "results.jsonl"

"""The settings of a check: backend, limits, and tolerances for all tensors, by dtype or by name pattern."""

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from torchstone.errors import InputError
from torchstone.numerics.tolerance import NAMES
from torchstone.record.base import Record
from torchstone.record.files import parse_toml, read_text
from torchstone.record.task import BackendFacts, Limits
from torchstone.record.tensor import element_bits

# What outputs are judged by: for all, for one element type, and for what a pattern of names means.


class Tolerances(Record, frozen=True, kw_only=True):
    """The tolerances of one check; anything else is decided by element type."""

    usual: dict[str, float] = {}
    by_dtype: dict[str, dict[str, float]] = {}
    by_pattern: tuple[tuple[str, dict[str, float]], ...] = ()  # of a path, class or op; later ones win

    def for_names(self, names: Sequence[str]) -> dict[str, object]:
        """What is judged by where one of these names is concerned, as a verdict takes it."""
        found: dict[str, object] = dict(self.usual)
        for pattern, given in self.by_pattern:
            if any(fnmatchcase(name, pattern) for name in names):
                found |= given
        return {**found, "by_dtype": self.by_dtype} if self.by_dtype else found


def read_tolerances(given: Sequence[str], file: Path | None = None) -> Tolerances:
    """From the command line (0.98, bfloat16=0.97, layers.*=0.95) and a TOML file; the command line wins."""
    found = _from_file(file) if file is not None else Tolerances()
    usual, by_dtype, by_pattern = dict(found.usual), dict(found.by_dtype), list(found.by_pattern)
    for text in given:
        name, equals, number = text.rpartition("=")
        pcc = {"pcc": _number(number, f"--pcc {text}")}
        if not equals:
            usual |= pcc
        elif element_bits(name) is not None:
            by_dtype[name] = {**by_dtype.get(name, {}), **pcc}
        else:
            by_pattern.append((name, pcc))
    return Tolerances(usual=usual, by_dtype=by_dtype, by_pattern=tuple(by_pattern))


def _number(text: object, where: str) -> float:
    try:
        number = float(str(text))
    except ValueError:
        msg = f"{where}: {text!r} is not a number; write 0.98, bfloat16=0.97 or layers.*=0.95"
        raise InputError(msg) from None
    if not -1 <= number <= 1:
        msg = f"{where}: a PCC lies between -1 and 1"
        raise InputError(msg)
    return number


def _from_file(path: Path) -> Tolerances:
    document = parse_toml(read_text(path), origin=str(path))
    dtypes, patterns = (_tables(document.pop(name, {}), path) for name in ("dtype", "pattern"))
    unknown = [name for name in dtypes if element_bits(name) is None]
    if unknown:
        msg = f"{path} has a tolerance for the unknown element type {unknown[0]!r}; write one such as bfloat16"
        raise InputError(msg)
    return Tolerances(
        usual=_table(document, path),
        by_dtype={name: _table(table, path) for name, table in dtypes.items()},
        by_pattern=tuple((pattern, _table(table, path)) for pattern, table in patterns.items()),
    )


def _tables(found: object, path: Path) -> Mapping[str, object]:
    if not isinstance(found, Mapping):
        msg = f"{path}: write tolerances as name = number, or under [dtype.NAME] and [pattern.'NAME']"
        raise InputError(msg)
    return found


def _table(found: object, path: Path) -> dict[str, float]:
    table = _tables(found, path)
    unknown = [name for name in table if name not in NAMES]
    if unknown:
        msg = f"{path} has the unknown tolerance {unknown[0]!r}; there are {', '.join(NAMES)}"
        raise InputError(msg)
    numbers: dict[str, float] = {}
    for name, number in table.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not isfinite(number):
            msg = f"{path}: {name} must be a number"
            raise InputError(msg)
        numbers[name] = float(number)
    return numbers


# --- Settings and folders ---


class Granularity(StrEnum):
    """How far down a check goes."""

    OP = "op"
    MODULE = "module"


class Settings(Record, frozen=True, kw_only=True):
    """One backend, and how to go about it."""

    backend: str
    options: dict[str, Any] = {}
    version: str = ""  # of the backend, as it says itself
    digest: str = ""  # of the backend's source and of the packages that it imports
    forks: bool = True  # whether the backend's process may be forked
    python: str | None = None  # another interpreter; None: this one
    jobs: int = 2
    limits: Limits = Limits(deadline_s=120.0)
    tolerances: Tolerances = Tolerances()
    profile: str = "default"  # what a correct implementation may do: exact, default, tt, ...
    granularity: Granularity = Granularity.OP
    only: str = ""
    max_depth: int | None = None
    exports_ir: bool = True  # of the modules that fail
    ir_of_passing: bool = False  # and of those that pass: every module that runs is exported first
    every: bool = False  # every occurrence of what fails runs, with its own values
    drift: bool = False  # also where the model passes
    backward: bool = False  # gradients are judged, too
    reuse: str = ""  # a file of results that models share; "" for none
    most_bisecting_runs: int = 60

    @property
    def backend_payload(self) -> dict[str, object]:
        """The backend as children open it."""
        return {"spec": self.backend, "options": self.options}


def with_facts(settings: Settings, facts: BackendFacts) -> Settings:
    """The settings with what the backend says of itself; raises InputError where it cannot do what is asked."""
    if not facts.opened:
        raise InputError(facts.reason)
    if not facts.usable:
        needs = f"; it needs {facts.needs}" if facts.needs else ""
        where = f" with {settings.python}" if settings.python else ""
        msg = f"backend {settings.backend} cannot run here{where}: {facts.reason}{needs}"
        raise InputError(msg)
    if settings.backward and not facts.gradients:
        msg = (
            f"backend {settings.backend} gives no gradients that --backward could judge; aot_eager and inductor do, "
            "and so does a backend of your own that says `gradients = True`"
        )
        raise InputError(msg)
    return msgspec.structs.replace(settings, version=facts.version, digest=facts.digest, forks=facts.forks)


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
    def dependencies(self) -> Path:
        """What the answers depended on: source files, weights, versions, environment."""
        return self.work / "dependencies.json"

    @property
    def values(self) -> Path:
        """Tensors of the recorded run."""
        return self.work / "values"

    @property
    def recorded_marker(self) -> Path:
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

"""Vectors and runs on disk: the plan before the first vector, a line per result as it comes, the whole at the end."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from msgspec.structs import replace

from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.base import Record
from torchstone.record.codec import load, save
from torchstone.record.files import matching
from torchstone.record.vector import Quarantine, SweepPlan, SweepRun, Vector, VectorFile, VectorResult
from torchstone.temporary import remove_tree, remove_unfinished
from torchstone.units import many
from torchstone.workers.journal import ResultJournal, read_results

# --- Vectors: one file per module in FOLDER/vectors, replaced as a whole ---


_FOLDER = "vectors"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST = 100


def write_vectors(folder: Path, files: Iterable[VectorFile]) -> list[Path]:
    """Write the suites that are given; other suites of the same modules stay. Gives the files that changed."""
    changed = []
    for new in files:
        path = folder / _FOLDER / f"{file_name(new.module)}.json"
        suites = {vector.suite for vector in new.vectors}
        before = load(path, VectorFile) if path.is_file() else None
        others = [vector for vector in before.vectors if vector.suite not in suites] if before is not None else []
        merged = replace(new, vectors=tuple(sorted((*others, *new.vectors), key=lambda one: (one.suite, one.id))))
        if merged != before:
            save(path, merged)
            changed.append(path)
    return changed


def read_vectors(folder: Path) -> list[VectorFile]:
    """All vectors of a folder, by module."""
    place = folder / _FOLDER
    if not place.is_dir():
        msg = f"{folder} holds no vectors; make some with `torchstone sweep generate --dir {folder}`"
        raise UnreadableFileError(msg)
    return sorted((load(path, VectorFile) for path in matching(place, "*.json")), key=lambda one: one.module)


def select(
    files: Sequence[VectorFile], *, modules: Sequence[str] = (), suites: Sequence[str] = (), vector_id: str = ""
) -> list[Vector]:
    """The vectors that fit: modules by the beginning of their names, one vector by the beginning of its id."""
    vectors = [
        vector
        for file in files
        if not modules or any(_names(wanted, file.module) for wanted in modules)
        for vector in file.vectors
        if not suites or vector.suite in suites
    ]
    if not vector_id:
        return vectors
    found = [
        vector for vector in vectors if vector.id.startswith(vector_id) or _digest(vector.id).startswith(vector_id)
    ]
    if len(found) != 1:
        what = "no vector" if not found else many(len(found), "vector")
        msg = f"{what} begin with {vector_id!r}; `torchstone sweep run --dry-run` lists them"
        raise InputError(msg)
    return found


def _digest(identity: str) -> str:
    """An id without the version of its rule in front."""
    return identity.partition("-")[2]


def _names(wanted: str, module: str) -> bool:
    return module == wanted or module.startswith(f"{wanted}.")


def file_name(module: str) -> str:
    """A file name for a module's name; names that a file cannot have stay apart by a digest."""
    safe = _UNSAFE.sub("_", module)
    if safe == module and len(safe) <= _LONGEST:
        return safe
    return f"{safe[:_LONGEST]}-{sha256(module.encode()).hexdigest()[:8]}"


# --- Runs: the plan before the first vector, a line per result as it arrives, the whole at the end ---
# FOLDER/runs/<run>/plan.json, results.jsonl and run.json. An interrupted run has no run.json: it can be resumed.


_RUNS, _PLAN, _RESULTS, _RUN = "runs", "plan.json", "results.jsonl", "run.json"
_QUARANTINE = "quarantine.json"


def read_quarantine(folder: Path) -> Quarantine:
    """The known failures of a sweep; none where the folder has no list."""
    path = folder / _QUARANTINE
    return load(path, Quarantine) if path.is_file() else Quarantine()


def write_quarantine(folder: Path, quarantine: Quarantine) -> Path:
    """Replace the list."""
    save(folder / _QUARANTINE, quarantine)
    return folder / _QUARANTINE


class RunFolder(Record, frozen=True, kw_only=True):
    """Where one run is kept."""

    path: Path

    @property
    def name(self) -> str:
        """The run."""
        return self.path.name

    @property
    def is_finished(self) -> bool:
        """Whether every vector of its plan has a result."""
        return (self.path / _RUN).is_file()

    def plan(self) -> SweepPlan:
        """What was to run."""
        return load(self.path / _PLAN, SweepPlan)

    def journal(self) -> ResultJournal[VectorResult]:
        """The results by vector, to add to; what a killed process did not complete is removed."""
        opened = ResultJournal(self.path / _RESULTS, VectorResult)
        remove_unfinished(self.path)
        return opened

    def results(self) -> dict[str, VectorResult]:
        """The results so far, the last one of each vector."""
        return read_results(self.path / _RESULTS, VectorResult)

    def run(self) -> SweepRun:
        """The whole run, or what there is of an interrupted one."""
        if self.is_finished:
            return load(self.path / _RUN, SweepRun)
        return self.gathered(finished=False)

    def gathered(self, *, finished: bool, notes: tuple[str, ...] = (), elapsed_s: float = 0.0) -> SweepRun:
        """Plan and results as one record, in the order of the plan."""
        plan, results = self.plan(), self.results()
        known = tuple(results[vector.id] for vector in plan.vectors if vector.id in results)
        return replace(plan.run, results=known, finished=finished, notes=notes, elapsed_s=elapsed_s)

    def finish(self, run: SweepRun) -> None:
        """Write the whole."""
        save(self.path / _RUN, run)

    def discard(self) -> None:
        """Remove a run that has no result."""
        remove_tree(self.path)


def new_run(folder: Path, plan: SweepPlan) -> RunFolder:
    """Begin a run: its plan is on disk before anything runs."""
    made = RunFolder(path=folder / _RUNS / plan.run.run)
    _remove_runs_without_plan(folder / _RUNS)
    save(made.path / _PLAN, plan)
    return made


def _remove_runs_without_plan(runs: Path) -> None:
    """Remove what is left of runs that were killed while their plan was written: they cannot be resumed."""
    for path in matching(runs, "*"):
        if path.is_dir() and not (path / _PLAN).exists() and any(path.iterdir()):
            remove_unfinished(path)
            with suppress(OSError):  # another process is writing its plan
                path.rmdir()


def new_run_name() -> str:
    """A name that sorts by time and that no other run has."""
    return f"{datetime.now(tz=UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:6]}"


def runs_in(folder: Path) -> list[RunFolder]:
    """The runs of a folder, oldest first."""
    place = folder / _RUNS
    return [RunFolder(path=path) for path in matching(place, "*") if (path / _PLAN).is_file()]


def find_run(folder: Path, name: str) -> RunFolder:
    """A run by the beginning of its name; "last" is the newest."""
    runs = runs_in(folder)
    found = runs[-1:] if name == "last" else [run for run in runs if run.name.startswith(name)]
    if len(found) == 1:
        return found[0]
    if not runs:
        msg = f"{folder} holds no run; make one with `torchstone sweep run`"
        raise UnreadableFileError(msg)
    known = ", ".join(run.name for run in runs[-5:])
    what = "no run" if not found else many(len(found), "run")
    begin = "begins" if not found else "begin"
    msg = f"{what} in {folder} {begin} with {name!r}; the newest are {known}"
    raise UnreadableFileError(msg)


def unfinished(folder: Path) -> Iterator[RunFolder]:
    """The interrupted runs, newest first."""
    return (run for run in reversed(runs_in(folder)) if not run.is_finished)

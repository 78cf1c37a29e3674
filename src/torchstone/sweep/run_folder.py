"""A run on disk: its plan before the first vector, a line per result as it comes, the whole at the end.

FOLDER/runs/<run>/plan.json, results.jsonl and run.json. An interrupted run has no run.json: it can be resumed.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from msgspec.structs import replace

from torchstone.errors import UnreadableFileError
from torchstone.record.base import Record
from torchstone.record.codec import load, save
from torchstone.record.vector import SweepPlan, SweepRun, VectorResult
from torchstone.workers.journal import ResultJournal, read_results

_RUNS, _PLAN, _RESULTS, _RUN = "runs", "plan.json", "results.jsonl", "run.json"


class RunFolder(Record, frozen=True, kw_only=True):
    """Where one run is kept."""

    path: Path

    @property
    def name(self) -> str:
        """The run."""
        return self.path.name

    @property
    def is_finished(self) -> bool:
        """Whether every vector of its plan was told."""
        return (self.path / _RUN).is_file()

    def plan(self) -> SweepPlan:
        """What was to run."""
        return load(self.path / _PLAN, SweepPlan)

    def journal(self) -> ResultJournal[VectorResult]:
        """The results by vector, to add to."""
        return ResultJournal(self.path / _RESULTS, VectorResult)

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
        told = tuple(results[vector.id] for vector in plan.vectors if vector.id in results)
        return replace(plan.run, results=told, finished=finished, notes=notes, elapsed_s=elapsed_s)

    def finish(self, run: SweepRun) -> None:
        """Write the whole."""
        save(self.path / _RUN, run)


def new_run(folder: Path, plan: SweepPlan) -> RunFolder:
    """Begin a run: its plan is on disk before anything runs."""
    made = RunFolder(path=folder / _RUNS / plan.run.run)
    save(made.path / _PLAN, plan)
    return made


def new_run_name() -> str:
    """A name that sorts by time and that no other run has."""
    return f"{datetime.now(tz=UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:6]}"


def runs_in(folder: Path) -> list[RunFolder]:
    """The runs of a folder, oldest first."""
    place = folder / _RUNS
    return [RunFolder(path=path) for path in sorted(place.glob("*")) if (path / _PLAN).is_file()]


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
    what = "no run" if not found else f"{len(found)} runs"
    begin = "begins" if not found else "begin"
    msg = f"{what} in {folder} {begin} with {name!r}; the newest are {known}"
    raise UnreadableFileError(msg)


def unfinished(folder: Path) -> Iterator[RunFolder]:
    """The interrupted runs, newest first."""
    return (run for run in reversed(runs_in(folder)) if not run.is_finished)

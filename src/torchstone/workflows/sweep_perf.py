"""Two environments measured by turns -> ops and configurations that are slower in the second."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.errors import InputError
from torchstone.units import many
from torchstone.workflows.executors import ExecutorRequest, opened_executor
from torchstone.workflows.progress import SILENT, Progress
from torchstone.workflows.sweep_generate import DEFAULT_FOLDER
from torchstone.workflows.sweep_run import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from torchstone.record.vector import SweepPlan, SweepRun, SweepSettings, Timing, Vector
    from torchstone.sweep.perf_gate import PerfComparison, Sample
    from torchstone.workers.executor import Executor

ROUNDS = 7
_AT_ONCE = 16  # vectors that one environment measures before the other one does
_ONE_JOB = ExecutorRequest(jobs=1, tasks_per_child=16)  # what runs beside a measurement disturbs it


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfRequest:
    """Two runs of a folder, by the beginning of their names; their environments are measured again, by turns."""

    first: str
    second: str
    slower_by: float = 1.15
    rounds: int = ROUNDS
    folder: Path = DEFAULT_FOLDER


def compare_times(request: PerfRequest, progress: Progress = SILENT) -> "PerfComparison":
    """Measure the vectors that passed in both runs again, first in one environment and then in the other, by turns.

    Raises UnreadableFileError for an unknown run, InputError where no vector passed in both.
    """
    from torchstone.record.vector import Status
    from torchstone.sweep.folder import find_run

    runs = [find_run(request.folder, name) for name in (request.first, request.second)]
    passed = [{result.id for result in run.results().values() if result.status is Status.PASS} for run in runs]
    first, second = (run.plan() for run in runs)
    vectors = [one for one in second.vectors if one.id in passed[0] & passed[1] and one.configuration is not None]
    if not vectors:
        msg = f"no vector of an op passed in {request.first} and {request.second}: there are no times to compare"
        raise InputError(msg)
    return measure_by_turns(
        (first, second), vectors, rounds=request.rounds, slower_by=request.slower_by, progress=progress
    )


def measure_by_turns(
    plans: "tuple[SweepPlan, SweepPlan]",
    vectors: "Sequence[Vector]",
    *,
    rounds: int = ROUNDS,
    slower_by: float = 1.15,
    progress: Progress = SILENT,
) -> "PerfComparison":
    """Rounds of both environments, some vectors at a time, the first one first in every other round."""
    from torchstone.sweep.perf_gate import judge_times

    ratios: _Ratios = ({}, {})
    with ExitStack() as opened:
        executors = [opened.enter_context(_opened(plan.run, plan.settings)) for plan in plans]
        turns = _Turns(plans=plans, executors=(executors[0], executors[1]), progress=progress)
        turns.measure(vectors, ratios, rounds)
        found = judge_times(_samples(vectors, ratios), slower_by=slower_by)
        suspects = _suspects(found, vectors)
        if suspects:  # as many rounds again: chance does not repeat itself, and a small difference becomes provable
            turns.measure(suspects, ratios, rounds)
            found = judge_times(_samples(vectors, ratios), slower_by=slower_by)
    return found


_Ratios = tuple[dict[str, list[float]], dict[str, list[float]]]  # vector -> rounds, in either environment


def _samples(vectors: "Sequence[Vector]", ratios: _Ratios) -> "list[Sample]":
    from torchstone.sweep.perf_gate import Sample

    return [
        Sample(id=one.id, op=one.op, before=tuple(before), after=tuple(after), calls=one.calls)
        for one in vectors
        if (before := ratios[0].get(one.id)) and (after := ratios[1].get(one.id))
    ]


def _suspects(found: "PerfComparison", vectors: "Sequence[Vector]") -> "list[Vector]":
    """The vectors whose op, or which themselves, may be slower."""
    least = sqrt(found.slower_by)
    ops = {change.op for change in found.ops if change.ratio >= least}
    ids = {change.id for change in found.configurations if change.ratio >= least}
    return [vector for vector in vectors if vector.op in ops or vector.id in ids]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turns:
    """Two environments that measure by turns."""

    plans: "tuple[SweepPlan, SweepPlan]"
    executors: "tuple[Executor, Executor]"
    progress: Progress

    def measure(self, vectors: "Sequence[Vector]", ratios: _Ratios, rounds: int) -> None:
        """Add rounds of all vectors."""
        for number in range(rounds):
            with self.progress.step(f"measuring {many(len(vectors), 'vector')}, round {number + 1} of {rounds}"):
                for first in range(0, len(vectors), _AT_ONCE):
                    for place in (0, 1) if number % 2 == 0 else (1, 0):
                        some = vectors[first : first + _AT_ONCE]
                        for name, timing in _timed(self.executors[place], some, self.plans[place]):
                            ratios[place].setdefault(name, []).extend(timing.ratios)


def _opened(run: "SweepRun", settings: "SweepSettings") -> "AbstractContextManager[Executor]":
    from torchstone.record.task import Limits
    from torchstone.sweep.run import backend_environment

    environment = backend_environment(run.backend, run.options, python=run.python, forks=settings.forks)
    return opened_executor(environment, Limits(deadline_s=settings.timeout or DEFAULT_TIMEOUT_S), _ONE_JOB)


def _timed(executor: "Executor", vectors: "Sequence[Vector]", plan: "SweepPlan") -> "Iterator[tuple[str, Timing]]":
    from torchstone.record.task import Task
    from torchstone.sweep.run import OP_ENTRY, extra_of, result_of
    from torchstone.sweep.vectors import payload_of

    extra: Mapping[str, object] = {**extra_of(plan.run, plan.settings), "perf": {"runs": plan.settings.perf_runs}}
    known = {vector.id: vector for vector in vectors}
    for vector in vectors:
        executor.submit(Task(id=vector.id, entry=OP_ENTRY, payload={**payload_of(vector), **extra}))
    for task in executor.results():
        timing = result_of(known[task.id], task).timing
        if timing is not None:
            yield task.id, timing

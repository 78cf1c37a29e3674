"""run_vectors(): vectors -> results as they come, each vector in a process that nothing else depends on."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from torchstone.record.base import Record
from torchstone.record.check import Outcome
from torchstone.record.task import Ending, Limits, Task, TaskResult
from torchstone.record.vector import Attempt, Timing, Validity, Vector, VectorResult, status_of
from torchstone.sweep.canary import Canary, is_canary
from torchstone.sweep.payloads import payload_of
from torchstone.workers.executor import Executor

OP_ENTRY = "torchstone.sweep.child.run:run_vector"
_PROBE = "reference of "
MODULE_ENTRY = "torchstone.sweep.child.module:run_vector"
_OUTCOME_OF = {
    Ending.RAISED: Outcome.RAISED,
    Ending.CRASHED: Outcome.CRASHED,
    Ending.TIMED_OUT: Outcome.TIMED_OUT,
    Ending.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY,
    Ending.NO_ANSWER: Outcome.CRASHED,
    Ending.CANCELLED: Outcome.NOT_RUN,
}
DIED = frozenset({Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY})


class RunPolicy(Record, frozen=True, kw_only=True):
    """How vectors are run."""

    extra: dict[str, Any] = {}  # for every payload: backend, tolerance, perf
    timeout_s: float | None = None  # None: the vector's own, or the pool's
    memory_bytes: int | None = None  # None: the pool's
    retries: int = 1  # after a crash, a hang or too much memory; wrong results are not run again
    retry_all: bool = False  # run every failure again: is it flaky?
    probes: bool = True  # ask whether a call that ends the backend ends eager PyTorch, too
    window: int = 256  # vectors handed to the executor at once


class Runner:
    """One pass over vectors; iterate over `results` and look at `aborted` after."""

    def __init__(self, executor: Executor, policy: RunPolicy, canary: Canary | None = None) -> None:
        self.aborted = ""  # why it stopped early
        self._executor = executor
        self._policy = policy
        self._canary = canary
        self._pending: dict[str, Vector] = {}
        self._attempts: dict[str, list[Attempt]] = {}
        self._probed: dict[str, tuple[Vector, VectorResult]] = {}  # died; does eager PyTorch die of it, too?

    def results(self, vectors: Sequence[Vector]) -> Iterator[VectorResult]:
        """How each vector ended, in the order they end; one that is told twice is told better the second time."""
        waiting = iter(vectors)
        for vector in vectors:
            if vector.validity is Validity.INVALID:
                yield not_run(vector, vector.reason)
        self._fill(waiting)
        for task in self._executor.results():
            if is_canary(task.id):
                yield from self._heard_from_canary(task)
            elif task.id.startswith(_PROBE):
                yield from self._probe_ended(task)
            else:
                yield from self._ended(task)
            if not self.aborted:
                self._fill(waiting)
        if self.aborted:
            for vector in (*self._pending.values(), *waiting):
                if vector.validity is Validity.VALID:
                    yield not_run(vector, self.aborted)

    def _fill(self, waiting: Iterator[Vector]) -> None:
        while len(self._pending) < self._policy.window:
            vector = next(waiting, None)
            if vector is None:
                return
            if vector.validity is Validity.VALID:
                self._pending[vector.id] = vector
                self._submit(vector)

    def _submit(self, vector: Vector, *, probe: bool = False) -> None:
        entry = MODULE_ENTRY if vector.configuration is None else OP_ENTRY
        seconds = self._policy.timeout_s or vector.timeout_s
        limits = None if seconds is None else Limits(deadline_s=seconds, memory_bytes=self._policy.memory_bytes)
        payload = {**payload_of(vector), **self._policy.extra, **({"only_reference": True} if probe else {})}
        name = f"{_PROBE}{vector.id}" if probe else vector.id
        self._executor.submit(Task(id=name, entry=entry, payload=payload, limits=limits))

    def _ended(self, task: TaskResult) -> Iterator[VectorResult]:
        vector = self._pending.get(task.id)
        if vector is None:  # given up meanwhile
            return
        result = result_of(vector, task)
        attempts = self._attempts.setdefault(vector.id, [])
        attempts.append(Attempt(outcome=result.outcome, detail=result.detail, elapsed_s=result.elapsed_s))
        result = replace(result, attempts=tuple(attempts), flaky=len({attempt.outcome for attempt in attempts}) > 1)
        if result.outcome in DIED and self._canary is not None:
            self._executor.submit(self._canary.task_after(vector, result))
        if self._runs_again(result):
            self._submit(vector)
        else:
            del self._pending[vector.id]
            del self._attempts[vector.id]
            if result.outcome in DIED and vector.configuration is not None and self._policy.probes:
                self._probed[vector.id] = (vector, result)
                self._submit(vector, probe=True)
        yield result

    def _probe_ended(self, task: TaskResult) -> Iterator[VectorResult]:
        """A backend cannot be blamed for a call that ends eager PyTorch itself."""
        vector, result = self._probed.pop(task.id.removeprefix(_PROBE))
        outcome = _OUTCOME_OF.get(task.ending)
        if outcome in DIED:
            why = f"eager PyTorch itself {task.evidence.error or outcome.value}"
            yield replace(not_run(vector, why), attempts=result.attempts, last_output=result.last_output)

    def _runs_again(self, result: VectorResult) -> bool:
        if self.aborted or len(result.attempts) > self._policy.retries:
            return False
        if result.outcome in DIED:
            return True
        return self._policy.retry_all and result.outcome not in (Outcome.PASSED, Outcome.NOT_RUN)

    def _heard_from_canary(self, task: TaskResult) -> Iterator[VectorResult]:
        assert self._canary is not None  # noqa: S101 - a canary was sent
        verdict = self._canary.heard(task)
        if verdict.send_again is not None:
            self._executor.submit(verdict.send_again)
        if verdict.fault:
            self.aborted = verdict.fault
            for vector, result in verdict.blamed:
                yield replace(not_run(vector, verdict.fault), attempts=result.attempts, last_output=result.last_output)


def result_of(vector: Vector, task: TaskResult) -> VectorResult:
    """How a vector ended, from how its task did."""
    answer: Mapping[str, Any] = task.answer if task.ending is Ending.ANSWERED and task.answer else {}
    outcome = Outcome(answer["outcome"]) if answer else _OUTCOME_OF[task.ending]
    timing = answer.get("timing")
    evidence = task.evidence
    return replace(
        _blank(vector, outcome),
        detail=str(answer.get("detail", "")) if answer else evidence.error or task.ending.value,
        verdict=answer.get("verdict"),
        timing=None if timing is None else Timing(**timing),
        elapsed_s=task.elapsed_s,
        signal=evidence.signal,
        exit_code=evidence.exit_code,
        traceback=str(answer.get("traceback", "")) or evidence.traceback or "",
        last_output="" if outcome is Outcome.PASSED else evidence.last_output,
        peak_bytes=evidence.peak_bytes,
    )


def not_run(vector: Vector, why: str) -> VectorResult:
    """The result of a vector that was not run."""
    return replace(_blank(vector, Outcome.NOT_RUN), detail=why)


def _blank(vector: Vector, outcome: Outcome) -> VectorResult:
    return VectorResult(
        id=vector.id,
        module=vector.module,
        suite=vector.suite,
        op=vector.op,
        status=status_of(outcome, expected_to_fail=vector.expected_to_fail),
        outcome=outcome,
        configuration="" if vector.configuration is None else vector.id,
        calls=vector.calls,
        models=vector.models,
    )

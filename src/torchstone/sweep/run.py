"""Vectors -> results as they come, each vector in its own process; a canary op tests the device."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from torchstone.backends.failures import exhausted
from torchstone.backends.ttnn.boards import L1_SMALL_BYTES, Board
from torchstone.backends.ttnn.environment import kernel_cache
from torchstone.record.base import Record
from torchstone.record.check import UNJUDGED, Outcome
from torchstone.record.task import Ending, Environment, Limits, Task, TaskResult
from torchstone.record.vector import Attempt, SweepRun, SweepSettings, Timing, Validity, Vector, VectorResult, status_of
from torchstone.sweep.generate import WARM_UP
from torchstone.sweep.vectors import TTNN_ROLE, payload_of
from torchstone.workers.executor import Executor

# --- The part of a payload that all vectors of a run share ---


def extra_of(run: SweepRun, settings: SweepSettings) -> dict[str, object]:
    """Backend, tolerance and what else the child side must know."""
    return {
        "backend": run.backend,
        "options": run.options,
        "tolerance": settings.tolerance,
        "profile": settings.profile,
        "strict_stride": settings.strict_stride,
        "backward": settings.backward,
        "perf": {"runs": settings.perf_runs} if settings.perf else None,
    }


# --- Canary: is it the vector or the device? ---
# After a process died, an op that always works is run on the same backend. When that
# fails too, the device is reset, and it is tried once more. When it still fails, no vector is at fault: those that
# died since the canary last passed, and all that did not run yet, are reported as not run.


_PREFIX = "canary "
_RESET_S = 300.0
CALL: dict[str, Any] = {
    "op": "aten.add.Tensor",
    "steps": [
        {"op": "aten.add.Tensor", "arguments": {"self": {"tensor": "i0"}, "other": {"tensor": "i1"}, "alpha": 1}}
    ],
    "inputs": [
        {"name": f"i{number}", "shape": [2], "dtype": "float32", "stride": [1], "offset": 0, "memory": number,
         "facts": {"lowest": 2.0, "highest": 2.0}}
        for number in range(2)
    ],
}  # fmt: skip


_TENSOR = {"shape": [1, 1, 32, 32], "dtype": "BFLOAT16", "layout": "TILE", "storage": "DEVICE", "memory": None}
TTNN_CALL: dict[str, Any] = {
    "recipe": {"op": "ttnn.add", "positional": [{"tensor": _TENSOR}, {"tensor": _TENSOR}], "named": {}}
}


class Verdict(Record, frozen=True, kw_only=True):
    """What the canary means for the run."""

    fault: str = ""  # why the run cannot continue
    send_again: Task | None = None
    blamed: tuple[tuple[Vector, VectorResult], ...] = ()  # died, and it was not their doing


def is_canary(task_id: str) -> bool:
    """Whether a task is a canary's."""
    return task_id.startswith(_PREFIX)


class Canary:
    """Sent after each death; knows who died since the last good sign."""

    def __init__(
        self,
        *,
        entry: str,
        extra: dict[str, Any],
        deadline_s: float,
        reset_command: tuple[str, ...] = (),
        call: dict[str, Any] | None = None,
    ) -> None:
        self.resets = 0
        self._entry = entry
        self._extra = extra
        self._call = call or CALL
        self._deadline_s = deadline_s
        self._reset_command = reset_command
        self._sent = 0
        self._suspects: dict[str, tuple[Vector, VectorResult]] = {}

    def task_after(self, vector: Vector, result: VectorResult) -> Task:
        """The canary to send after a vector died."""
        self._suspects[vector.id] = (vector, result)
        return self._task()

    def judge(self, task: TaskResult) -> Verdict:
        """What its ending means; a reset happens in here."""
        answer = task.answer if task.ending is Ending.ANSWERED and isinstance(task.answer, dict) else {}
        if answer.get("outcome") in ("passed", "accepted"):
            self._suspects.clear()
            return Verdict()
        why = str(answer.get("detail") or task.evidence.error or task.ending.value)
        if not self.resets and self._reset_command:
            self.resets += 1
            trouble = self._reset()
            if not trouble:
                return Verdict(send_again=self._task())
            why = f"{why}; {trouble}"
        fault = f"not the vector's fault: an op that always works fails here, too ({why})"
        return Verdict(fault=fault, blamed=tuple(self._suspects.values()))

    def _task(self) -> Task:
        self._sent += 1
        limits = Limits(deadline_s=self._deadline_s)
        return Task(
            id=f"{_PREFIX}{self._sent}", entry=self._entry, payload={**self._call, **self._extra}, limits=limits
        )

    def _reset(self) -> str:
        """Run the user's command that resets the device; what went wrong, or nothing."""
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command
                self._reset_command, capture_output=True, text=True, check=False, timeout=_RESET_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the reset command failed: {error}"
        return "" if done.returncode == 0 else f"the reset command ended with exit code {done.returncode}"


# --- Running vectors, each in a process of its own ---


OP_ENTRY = "torchstone.sweep.child.run:run_vector"
TTNN_ENTRY = "torchstone.sweep.child.ttnn_calls:run_vector"
TTNN = "ttnn"  # the backend whose vectors are calls of ttnn, on a mock device or a real one
_PROBE = "reference of "
MODULE_ENTRY = "torchstone.sweep.child.module:run_vector"
_OUTCOME_OF = {
    Ending.RAISED: Outcome.RAISED,
    Ending.CRASHED: Outcome.CRASHED,
    Ending.TIMED_OUT: Outcome.TIMED_OUT,
    Ending.TOO_BUSY: Outcome.TOO_BUSY,
    Ending.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY,
    Ending.NO_ANSWER: Outcome.CRASHED,
    Ending.CANCELLED: Outcome.NOT_RUN,
}
_NOT_JUDGED = "InfrastructureError"  # what the child side raises where the kernel cache or the compiler failed
_INFRASTRUCTURE_RETRIES = 3  # processes that build the same kernel for the first time disturb each other
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
        """How each vector ended, in the order they end; a second result of a vector replaces its first."""
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
        entry = MODULE_ENTRY if vector.configuration is None else TTNN_ENTRY if vector.role == TTNN_ROLE else OP_ENTRY
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
        if _died(result) and self._canary is not None:
            self._executor.submit(self._canary.task_after(vector, result))
        if self._runs_again(result):
            self._submit(vector)
        else:
            del self._pending[vector.id]
            del self._attempts[vector.id]
            if _died(result) and vector.configuration is not None and self._policy.probes:
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
        if self.aborted:
            return False
        if was_not_judged(result.detail):
            return len(result.attempts) <= _INFRASTRUCTURE_RETRIES
        if len(result.attempts) > self._policy.retries:
            return False
        if _died(result):
            return True
        return self._policy.retry_all and result.outcome not in (Outcome.PASSED, Outcome.ACCEPTED, *UNJUDGED)

    def _heard_from_canary(self, task: TaskResult) -> Iterator[VectorResult]:
        assert self._canary is not None  # noqa: S101 - a canary was sent
        verdict = self._canary.judge(task)
        if verdict.send_again is not None:
            self._executor.submit(verdict.send_again)
        if verdict.fault:
            self.aborted = verdict.fault
            for vector, result in verdict.blamed:
                yield replace(not_run(vector, verdict.fault), attempts=result.attempts, last_output=result.last_output)


def _died(result: VectorResult) -> bool:
    """Whether its process did, as far as its outcome says; a device that has no room answers, and nothing died."""
    return result.outcome in DIED and not (result.verdict is not None and "mock" in result.verdict)


def was_not_judged(error: str) -> bool:
    """Whether an error, which begins with the name of its class, says that the machinery around a call failed."""
    return error.partition(":")[0].rpartition(".")[2] == _NOT_JUDGED


def result_of(vector: Vector, task: TaskResult) -> VectorResult:
    """How a vector ended, from how its task did."""
    answer: Mapping[str, Any] = task.answer if task.ending is Ending.ANSWERED and task.answer else {}
    outcome = Outcome(answer["outcome"]) if answer else _OUTCOME_OF[task.ending]
    raised = task.evidence.error or "" if task.ending is Ending.RAISED else ""
    if was_not_judged(raised) or exhausted(raised):
        outcome = Outcome.NOT_RUN  # the machinery around the call failed: that is not a verdict on the call
    timing = answer.get("timing")
    evidence = task.evidence
    return replace(
        _blank(vector, outcome),
        detail=str(answer.get("detail", "")) if answer else evidence.error or task.ending.value,
        verdict=answer.get("verdict"),
        timing=None if timing is None else convert(timing, Timing),
        elapsed_s=task.elapsed_s,
        signal=evidence.signal,
        exit_code=evidence.exit_code,
        traceback=str(answer.get("traceback", "")) or evidence.traceback or "",
        last_output="" if outcome in (Outcome.PASSED, Outcome.ACCEPTED) else evidence.last_output,
        peak_bytes=evidence.peak_bytes,
    )


def fails_alike(result: VectorResult, failure: VectorResult) -> bool:
    """Whether two failures are of one kind: the same outcome, and the same exception where one was raised."""
    if result.outcome is not failure.outcome:
        return False
    named = result.outcome in (Outcome.RAISED, Outcome.COMPILE_ERROR)
    return not named or result.detail.partition(":")[0] == failure.detail.partition(":")[0]


def timed_again(
    executor: Executor, vectors: Sequence[Vector], before: Mapping[str, VectorResult], extra: Mapping[str, object]
) -> Iterator[VectorResult]:
    """One more round of times: each result with the round added; a vector that does not end keeps what it has."""
    for vector in vectors:
        entry = MODULE_ENTRY if vector.configuration is None else OP_ENTRY
        executor.submit(Task(id=vector.id, entry=entry, payload={**payload_of(vector), **extra}))
    known = {vector.id: vector for vector in vectors}
    for task in executor.results():
        old, new = before[task.id], result_of(known[task.id], task).timing
        if old.timing is not None and new is not None:
            ratios = old.timing.ratios + new.ratios
            rounds_s = (old.timing.rounds_s or (old.timing.median_s,)) + (new.rounds_s or (new.median_s,))
            yield replace(old, timing=replace(old.timing, ratios=ratios, rounds_s=rounds_s))


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
        configuration="" if vector.configuration is None else vector.configuration.key,
        calls=vector.calls,
        models=vector.models,
    )


# --- Environments ---


DESCRIBE_MODULE = "torchstone.sweep.child.module:describe"  # the vectors of a sweep module, in its environment
WRITE_SCRIPT = "torchstone.sweep.child.repro:source"  # one failing vector as a script, in a backend's environment
RESULTS_OF_STEPS = "torchstone.sweep.child.program:describe_results"  # what the steps of a chain give
RECORD_AGAIN = "torchstone.sweep.child.retrace:retrace"  # what a vector executes, in eager's environment
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # many small vectors side by side, not one on all cores


def checking_environment() -> Environment:
    """For asking the meta device."""
    return Environment(python=sys.executable, variables=_ONE_THREAD, setup=WARM_UP)


def backend_environment(
    backend: str, options: dict[str, object], *, python: str = "", forks: bool = True, threads: int = 1
) -> Environment:
    """For running ops on a backend."""
    variables = {name: str(threads) for name in _ONE_THREAD}
    return Environment(
        python=python or sys.executable,
        variables=variables,
        setup="torchstone.sweep.child.run:set_up",
        setup_payload={"backend": backend, "options": options, "threads": threads},
        forks=forks,
    )


def ttnn_environment(board: Board, *, python: str, l1_small_bytes: int = L1_SMALL_BYTES) -> Environment:
    """For calls of ttnn on a board; each process opens its device after the fork."""
    return Environment(
        python=python,
        variables=_ONE_THREAD | board.variables(kernel_cache(python)),
        setup="torchstone.backends.ttnn.device:set_up",
        setup_payload={"mesh": list(board.mesh), "l1_small_bytes": l1_small_bytes},
    )


def module_environment(
    path: Path, *, python: str = "", variables: dict[str, str] | None = None, extra_paths: tuple[str, ...] = ()
) -> Environment:
    """For the vectors of a sweep module."""
    return Environment(
        python=python or sys.executable,
        variables={**_ONE_THREAD, **(variables or {})},
        setup="torchstone.sweep.child.module:set_up",
        setup_payload={"path": str(path)},
        extra_paths=(*extra_paths, str(path.parent)),
    )

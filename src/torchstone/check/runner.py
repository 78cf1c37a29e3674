"""Requests to the backend, each run in a process of its own, and the outcome read from how it ended."""

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, assert_never

import msgspec

from torchstone.backends.failures import exhausted, same_words
from torchstone.record.base import Record
from torchstone.record.check import UNJUDGED, Numbers, Outcome, Proof, Status, UnitResult
from torchstone.record.task import Ending, Evidence, Task, TaskResult
from torchstone.workers.executor import Executor
from torchstone.workers.journal import ResultJournal

# --- The result of a unit, from how its process ended ---


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")
_NUMBER = re.compile(r"\d+")
_MOST_OUTPUT = 2_000
_EXPORT = "export"
EAGER = "eager"  # the stage before a backend comes to see anything
_REFUSALS = frozenset({Outcome.UNSUPPORTED, Outcome.COMPILE_ERROR, Outcome.RAISED})


def unit_result(ended: TaskResult, *, stage: str = "", ir_folder: str = "") -> UnitResult:
    """The result of a task; `stage` is how far it came when it did not live to tell."""
    if ended.ending is Ending.ANSWERED:
        return _answered(ended, ir_folder)
    if stage == EAGER:
        reason = f"eager itself, which runs first: {_reason(ended)}"
        return UnitResult(
            outcome=Outcome.NOT_RUN, reason=reason, stage=stage, proof=_proof(ended.evidence), elapsed_s=ended.elapsed_s
        )
    return UnitResult(
        outcome=_outcome_of(ended.ending),
        reason=_reason(ended),
        stage=stage,
        proof=_proof(ended.evidence),
        elapsed_s=ended.elapsed_s,
    )


def status_of(result: UnitResult) -> Status:
    """What a result says of the module it belongs to."""
    if result.outcome is Outcome.PASSED:
        return Status.SUCCESS
    if result.outcome in UNJUDGED:
        return Status.SKIPPED
    refused = result.outcome in (Outcome.UNSUPPORTED, Outcome.COMPILE_ERROR)
    if result.stage == _EXPORT or (refused and result.ir_error):
        return Status.IR_EXPORT_FAILED
    return Status.FAILED


def fails_alike(first: UnitResult, second: UnitResult) -> bool:
    """Whether two runs failed alike: numbers, and the ops that are named, may differ in the texts."""
    if first.outcome is not second.outcome:
        return False
    if first.outcome is Outcome.WRONG:
        return True
    return same_words(first.reason, second.reason)


def reproduces(script: UnitResult, found: UnitResult) -> bool:
    """Whether a script failed as it was found; one that only raises does not know a refusal from another error."""
    if found.outcome not in _REFUSALS:
        return script.outcome is found.outcome
    if script.outcome not in _REFUSALS:
        return False
    names_all = bool(found.named_ops) and all(name in script.reason for name in found.named_ops)
    return names_all or _without_numbers(found.reason) in _NUMBER.sub("", script.reason)


def _without_numbers(text: str) -> str:
    return _NUMBER.sub("", text)[:80]


def _outcome_of(ending: Ending) -> Outcome:
    match ending:
        case Ending.CRASHED | Ending.NO_ANSWER:
            return Outcome.CRASHED
        case Ending.TIMED_OUT:
            return Outcome.TIMED_OUT
        case Ending.TOO_BUSY:
            return Outcome.TOO_BUSY
        case Ending.OUT_OF_MEMORY:
            return Outcome.OUT_OF_MEMORY
        case Ending.RAISED | Ending.CANCELLED | Ending.ANSWERED:
            return Outcome.NOT_RUN
        case _:
            assert_never(ending)


def _reason(ended: TaskResult) -> str:
    evidence = ended.evidence
    match ended.ending:
        case Ending.CRASHED:
            return f"ended by {evidence.signal}" if evidence.signal else f"ended with exit code {evidence.exit_code}"
        case Ending.NO_ANSWER:
            return "ended without an answer"
        case Ending.TIMED_OUT:
            return "did not end before its deadline, nor in a second run alone"
        case Ending.TOO_BUSY:
            return _clean(evidence.error or "the machine was too busy to run it")
        case Ending.OUT_OF_MEMORY:
            return "took more memory than it may"
        case _:
            return _clean(evidence.error or ended.ending.value)


def _proof(evidence: Evidence) -> Proof:
    return Proof(
        error=_clean(evidence.error or ""),
        traceback=_clean(evidence.traceback or ""),
        signal=evidence.signal,
        exit_code=evidence.exit_code,
        last_output=_clean(evidence.last_output)[-_MOST_OUTPUT:],
    )


def _clean(text: str) -> str:
    """Addresses differ from run to run, colours are for terminals: neither says anything to a reader."""
    return _ADDRESS.sub("0x...", _COLOUR.sub("", text))


def _answered(ended: TaskResult, ir_folder: str) -> UnitResult:
    answer: Mapping[str, Any] = ended.answer if isinstance(ended.answer, dict) else {}
    outcome = Outcome(answer.get("outcome", Outcome.NOT_RUN))
    numbers = answer.get("numbers")
    proof = None
    if outcome not in (Outcome.PASSED, Outcome.WRONG) and answer.get("error"):
        proof = Proof(error=_clean(answer["error"]), traceback=_clean(answer.get("traceback", "")))
    return UnitResult(
        outcome=outcome,
        reason=_clean(answer.get("reason", "")),
        stage="" if outcome is Outcome.PASSED else answer.get("stage", ""),
        numbers=None if numbers is None else msgspec.convert(numbers, Numbers),
        tolerance=answer.get("tolerance", {}),
        proof=proof,
        irs=tuple(f"{ir_folder}/{name}.txt" for name in answer.get("irs", ())),
        ir_error=_clean(answer.get("ir_error", "")),
        notes=tuple(answer.get("notes", ())),
        named_ops=tuple(answer.get("ops", ())),
        elapsed_s=ended.elapsed_s,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# --- Requests, each run in a process of its own; the journal keeps every answer, so none runs twice ---


class Answer(Record, frozen=True, kw_only=True):
    """An answer, as on_answer to whoever watches."""

    name: str
    result: UnitResult
    fresh: bool  # False: it was known from before
    waiting: int  # requests that are still open


OnAnswer = Callable[[Answer], None]


class Request(Record, frozen=True, kw_only=True):
    """A task, and where it leaves what it cannot answer itself."""

    task: Task
    ir_task: Task | None = None  # exports the IR; run when the task fails
    stage_file: str = ""  # how far it came
    ir_folder: str = ""  # relative to the folder of results
    reuse_key: str = ""  # the same request of another model has the same key; "" where there is none


class Runner:
    """Asks an executor what neither the journal nor an earlier model has answered."""

    def __init__(
        self, executor: Executor, journal: Path, *, reuse: Path | None = None, on_answer: OnAnswer | None = None
    ) -> None:
        self.asked = 0
        self.elapsed_s = 0.0
        self.reused: list[str] = []  # when the results ran that were reused
        self._executor = executor
        self._journal = ResultJournal(journal, UnitResult)
        self._shared = ResultJournal(reuse, UnitResult) if reuse is not None else None
        self._on_answer = on_answer
        self._open: dict[str, Request] = {}
        self._ran: set[str] = set()  # in this run
        self._failed: dict[str, tuple[Request, UnitResult]] = {}  # whose IR is being exported, by that task
        self._ready: deque[tuple[str, UnitResult]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._journal.close()
        if self._shared is not None:
            self._shared.close()

    def ask(self, request: Request) -> None:
        """Put a request; its answer comes with `answers`."""
        name = request.task.id
        self.asked += 1
        result = self._known(name) or self._shared_result(request)
        if result is not None:
            self._ready.append((name, result))
            return
        self._open[name] = request
        self._executor.submit(request.task)

    def answers(self) -> Iterator[tuple[str, UnitResult]]:
        """The answers as they come; more may be asked meanwhile."""
        while self._ready or self._open:
            yield from self._known_answers()
            for ended in self._executor.results():
                request, result = self._answered(ended)
                if result.failed and request.ir_task is not None and ended.id == request.task.id:
                    self._failed[request.ir_task.id] = (request, result)
                    self._open[request.ir_task.id] = request
                    self._executor.submit(request.ir_task)
                    continue
                self._keep(request, result, answered=ended.ending is Ending.ANSWERED)
                yield self._tell(request.task.id, result, fresh=True)
                yield from self._known_answers()

    def _answered(self, ended: TaskResult) -> tuple[Request, UnitResult]:
        """The result of a request: of its task, or of a task that failed with the IR that was exported since."""
        request = self._open.pop(ended.id)
        stage = Path(request.stage_file) if request.stage_file else None
        reached = stage.read_text(encoding="ascii") if stage is not None and stage.is_file() else ""
        result = unit_result(ended, stage=reached, ir_folder=request.ir_folder)
        if ended.id not in self._failed:
            return request, msgspec.structs.replace(result, ran_at=_now())
        _, failed = self._failed.pop(ended.id)
        if ended.ending is Ending.ANSWERED:
            return request, msgspec.structs.replace(failed, irs=result.irs, ir_error=result.ir_error)
        return request, msgspec.structs.replace(failed, ir_error=result.reason, stage=_EXPORT)

    def _known(self, name: str) -> UnitResult | None:
        """The result of this run, or of the interrupted run that this one resumes."""
        result = self._journal.find(name)
        if result is None or name in self._ran:
            return result
        return msgspec.structs.replace(result, reused=True)

    def _shared_result(self, request: Request) -> UnitResult | None:
        """The result of another check; its IR is in the folder of that one."""
        if self._shared is None or not request.reuse_key:
            return None
        result = self._shared.find(request.reuse_key)
        if result is not None:
            result = msgspec.structs.replace(result, reused=True, irs=())
            self._journal.keep(request.task.id, result)
        return result

    def _keep(self, request: Request, result: UnitResult, *, answered: bool) -> None:
        self._ran.add(request.task.id)
        # not answered: the process failed beside the backend, as where it could not read the recorded values
        not_run = result.outcome is Outcome.NOT_RUN and (not answered or exhausted(result.reason))
        if result.outcome is Outcome.TOO_BUSY or not_run:
            return  # a resumed run tries again
        self._journal.keep(request.task.id, result)
        if self._shared is not None and request.reuse_key:
            self._shared.keep(request.reuse_key, result)

    def answer(self, request: Request) -> UnitResult:
        """Put one request and wait."""
        self.ask(request)
        ((_, result),) = self.answers()
        return result

    def reuse(self) -> dict[str, Any]:
        """The fields of a result that say how much of it was reused, and from when."""
        times = sorted(self.reused)
        return {"reused_tasks": len(times), "reused_from": tuple(dict.fromkeys((times[0], times[-1]))) if times else ()}

    def fetch(self, task: Task) -> TaskResult:
        """Run a task that does not test the backend; its answer is not journaled."""
        self._executor.submit(task)
        (ended,) = self._executor.results()
        return ended

    def _known_answers(self) -> Iterator[tuple[str, UnitResult]]:
        while self._ready:
            yield self._tell(*self._ready.popleft(), fresh=False)

    def _tell(self, name: str, result: UnitResult, *, fresh: bool) -> tuple[str, UnitResult]:
        self.elapsed_s += result.elapsed_s
        if result.reused:
            self.reused.append(result.ran_at)
        if self._on_answer is not None:
            self._on_answer(Answer(name=name, result=result, fresh=fresh, waiting=len(self._open) + len(self._ready)))
        return name, result

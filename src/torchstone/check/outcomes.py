"""How a process ended, and what it answered -> the result of a unit."""

import re
from collections.abc import Mapping
from typing import Any, assert_never

import msgspec

from torchstone.record.check import Numbers, Outcome, Proof, Status, UnitResult
from torchstone.record.task import Ending, Evidence, TaskResult

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
    if result.outcome is Outcome.NOT_RUN:
        return Status.SKIPPED
    refused = result.outcome in (Outcome.UNSUPPORTED, Outcome.COMPILE_ERROR)
    if result.stage == _EXPORT or (refused and result.ir_error):
        return Status.IR_EXPORT_FAILED
    return Status.FAILED


def same_way(first: UnitResult, second: UnitResult) -> bool:
    """Whether two runs failed alike: sizes and other numbers in the texts may differ."""
    if first.outcome is not second.outcome:
        return False
    if first.outcome is Outcome.WRONG:
        return True
    return _without_numbers(first.reason) == _without_numbers(second.reason)


def shows(script: UnitResult, found: UnitResult) -> bool:
    """Whether a script failed as it was found; one that only raises does not know a refusal from another error."""
    if found.outcome not in _REFUSALS:
        return script.outcome is found.outcome
    return script.outcome in _REFUSALS and _without_numbers(found.reason) in _NUMBER.sub("", script.reason)


def _without_numbers(text: str) -> str:
    return _NUMBER.sub("", text)[:80]


def _outcome_of(ending: Ending) -> Outcome:
    match ending:
        case Ending.CRASHED | Ending.NO_ANSWER:
            return Outcome.CRASHED
        case Ending.TIMED_OUT:
            return Outcome.TIMED_OUT
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
            return "did not end before its deadline"
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
        elapsed_s=ended.elapsed_s,
    )

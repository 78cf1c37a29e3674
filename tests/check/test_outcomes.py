import pytest

from torchstone.check.runner import fails_alike, reproduces, status_of, unit_result
from torchstone.record.check import Outcome, Status, UnitResult
from torchstone.record.task import Ending, Evidence, TaskResult


def ended(ending: Ending, **evidence: object) -> TaskResult:
    return TaskResult(id="x", ending=ending, evidence=Evidence(**evidence), elapsed_s=2.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "outcome", "reason"),
    [
        (ended(Ending.CRASHED, signal="SIGSEGV"), Outcome.CRASHED, "ended by SIGSEGV"),
        (ended(Ending.CRASHED, exit_code=7), Outcome.CRASHED, "ended with exit code 7"),
        (ended(Ending.NO_ANSWER, exit_code=0), Outcome.CRASHED, "ended without an answer"),
        (ended(Ending.TIMED_OUT), Outcome.TIMED_OUT, "did not end before its deadline, nor in a second run alone"),
        (ended(Ending.TOO_BUSY), Outcome.TOO_BUSY, "the machine was too busy to run it"),
        (ended(Ending.OUT_OF_MEMORY), Outcome.OUT_OF_MEMORY, "took more memory than it may"),
        (ended(Ending.RAISED, error="KeyError: 'x'"), Outcome.NOT_RUN, "KeyError: 'x'"),
        (ended(Ending.CANCELLED), Outcome.NOT_RUN, "cancelled"),
    ],
)
def test_every_end_of_a_process_has_its_outcome(task: TaskResult, outcome: Outcome, reason: str) -> None:
    result = unit_result(task, stage="run")

    assert (result.outcome, result.reason, result.stage, result.elapsed_s) == (outcome, reason, "run", 2.0)


def test_a_backend_is_not_blamed_for_the_end_of_eager() -> None:
    result = unit_result(ended(Ending.CRASHED, signal="SIGSEGV"), stage="eager")

    assert result.outcome is Outcome.NOT_RUN
    assert result.reason == "eager itself, which runs first: ended by SIGSEGV"


@pytest.mark.parametrize(
    ("found", "script", "same"),
    [
        ((Outcome.WRONG, "PCC 0.1"), (Outcome.WRONG, "outcome: wrong"), True),
        ((Outcome.WRONG, "PCC 0.1"), (Outcome.RAISED, "ValueError"), False),
        ((Outcome.CRASHED, "ended by SIGSEGV"), (Outcome.CRASHED, "ended by SIGSEGV"), True),
        ((Outcome.UNSUPPORTED, "no 8 rules"), (Outcome.RAISED, "RuntimeError: x <- Unsupported: no 9 rules"), True),
        ((Outcome.COMPILE_ERROR, "cannot view"), (Outcome.RAISED, "RuntimeError: strides do not fit"), False),
    ],
)
def test_a_script_shows_a_failure_when_it_fails_that_way(
    found: tuple[Outcome, str], script: tuple[Outcome, str], *, same: bool
) -> None:
    results = [UnitResult(outcome=outcome, reason=reason) for outcome, reason in (script, found)]

    assert reproduces(*results) is same


def test_a_script_that_names_the_refused_ops_in_other_words_shows_the_refusal() -> None:
    found = UnitResult(
        outcome=Outcome.UNSUPPORTED, reason="no conversion rule for aten.histc.default",
        named_ops=("aten.histc.default",),
    )  # fmt: skip

    for op, same in (("histc", True), ("cat", False)):
        said = f"OpConversionFailure: no conversion rule found for operations: aten.{op}.default"
        assert reproduces(UnitResult(outcome=Outcome.RAISED, reason=said), found) is same


def test_what_differs_from_run_to_run_is_not_kept() -> None:
    result = unit_result(ended(Ending.CRASHED, signal="SIGSEGV", last_output="Thread 0x00007f12ab dead", peak_bytes=5))

    assert result.proof is not None
    assert result.proof.last_output == "Thread 0x... dead"


def test_an_answer_is_taken_as_it_is() -> None:
    answer = {
        "outcome": "wrong",
        "reason": "PCC 0.1 is below 0.99",
        "stage": "run",
        "numbers": {"output": "logits", "pcc": 0.1},
        "tolerance": {"pcc": 0.99, "exact": False},
        "irs": ["aten"],
    }

    result = unit_result(TaskResult(id="x", ending=Ending.ANSWERED, answer=answer), ir_folder="irs/mod_000")

    assert result.outcome is Outcome.WRONG
    assert result.irs == ("irs/mod_000/aten.txt",)
    assert result.numbers is not None
    assert result.numbers.pcc == 0.1


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (UnitResult(outcome=Outcome.PASSED), Status.SUCCESS),
        (UnitResult(outcome=Outcome.PASSED, ir_error="no IR"), Status.SUCCESS),
        (UnitResult(outcome=Outcome.WRONG, ir_error="no IR"), Status.FAILED),
        (UnitResult(outcome=Outcome.UNSUPPORTED, ir_error="no rule"), Status.IR_EXPORT_FAILED),
        (UnitResult(outcome=Outcome.COMPILE_ERROR), Status.FAILED),
        (UnitResult(outcome=Outcome.CRASHED, stage="export"), Status.IR_EXPORT_FAILED),
        (UnitResult(outcome=Outcome.CRASHED, stage="run"), Status.FAILED),
        (UnitResult(outcome=Outcome.NOT_RUN), Status.SKIPPED),
    ],
)
def test_a_result_says_what_the_module_is(result: UnitResult, status: Status) -> None:
    assert status_of(result) is status


def test_failures_are_alike_when_only_numbers_differ() -> None:
    first = UnitResult(outcome=Outcome.RAISED, reason="size 128 at dimension 2")

    assert fails_alike(first, UnitResult(outcome=Outcome.RAISED, reason="size 4 at dimension 0"))
    assert not fails_alike(first, UnitResult(outcome=Outcome.RAISED, reason="no such file"))
    assert not fails_alike(first, UnitResult(outcome=Outcome.CRASHED, reason="size 128 at dimension 2"))


def test_wrong_is_wrong_however_far_off() -> None:
    first = UnitResult(outcome=Outcome.WRONG, reason="PCC 0.1")

    assert fails_alike(first, UnitResult(outcome=Outcome.WRONG, reason="3 elements are NaN"))

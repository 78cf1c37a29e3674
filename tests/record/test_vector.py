import pytest

from tests.sweep.builders import result, run, vector
from torchstone.record.check import Outcome
from torchstone.record.codec import decode, encode
from torchstone.record.vector import (
    FAILED,
    Status,
    SweepHistory,
    SweepPlan,
    SweepRun,
    SweepSettings,
    VectorFile,
    status_of,
)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome.PASSED, Status.PASS),
        (Outcome.WRONG, Status.FAIL_ASSERT_EXCEPTION),
        (Outcome.UNSUPPORTED, Status.FAIL_ASSERT_EXCEPTION),
        (Outcome.COMPILE_ERROR, Status.FAIL_ASSERT_EXCEPTION),
        (Outcome.RAISED, Status.FAIL_ASSERT_EXCEPTION),
        (Outcome.CRASHED, Status.FAIL_CRASH_HANG),
        (Outcome.TIMED_OUT, Status.FAIL_CRASH_HANG),
        (Outcome.OUT_OF_MEMORY, Status.FAIL_CRASH_HANG),
        (Outcome.TOO_BUSY, Status.NOT_RUN),
        (Outcome.NOT_RUN, Status.NOT_RUN),
    ],
)
def test_every_outcome_has_its_status_word(outcome: Outcome, status: Status) -> None:
    assert status_of(outcome, expected_to_fail=False) is status


def test_a_suite_that_is_expected_to_fail_turns_the_verdict_round() -> None:
    told = {outcome: status_of(outcome, expected_to_fail=True) for outcome in Outcome}

    assert told.pop(Outcome.PASSED) is told.pop(Outcome.ACCEPTED) is Status.XPASS
    assert told.pop(Outcome.NOT_RUN) is told.pop(Outcome.TOO_BUSY) is Status.NOT_RUN
    assert set(told.values()) == {Status.XFAIL}
    assert Status.XPASS in FAILED
    assert Status.XFAIL not in FAILED


@pytest.mark.parametrize(("suite", "expected"), [("xfail_shapes", True), ("model_traced", False)])
def test_the_name_of_a_suite_says_whether_it_is_expected_to_fail(suite: str, *, expected: bool) -> None:
    assert vector(suite=suite).expected_to_fail is expected


def test_counts_add_up_to_the_results() -> None:
    found = run("1", result("a"), result("b", Outcome.CRASHED), result("c", Outcome.TIMED_OUT))

    assert found.counts == {"FAIL_CRASH_HANG": 2, "PASS": 1}
    assert found.outcomes == {"crashed": 1, "passed": 1, "timed out": 1}
    assert sum(found.counts.values()) == sum(found.outcomes.values()) == len(found.results)


@pytest.mark.parametrize(
    "record",
    [
        run("1", result("a", Outcome.WRONG, verdict={"passed": False})),
        VectorFile(module="aten.mm.default", vectors=(vector(),)),
        SweepPlan(run=run("1"), vectors=(vector(),), settings=SweepSettings(timeout=5.0)),
        SweepHistory(runs=(run("1", result("a")),), texts={"a": "self=float32[2]"}),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_of_sweeps_survive_their_files(record: SweepRun | VectorFile | SweepPlan | SweepHistory) -> None:
    assert decode(encode(record), type(record), origin="here") == record


def test_the_newest_run_of_each_backend_is_the_last_one() -> None:
    history = SweepHistory(runs=(run("1"), run("2", backend="inductor"), run("3")))

    assert {backend: one.run for backend, one in history.newest.items()} == {"eager": "3", "inductor": "2"}

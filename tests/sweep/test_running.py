import pytest

from tests.sweep.builders import ScriptedExecutor, answered, died, mm, vector
from torchstone.record.check import Outcome
from torchstone.record.task import Ending, Evidence, TaskResult
from torchstone.record.vector import Status, Validity, Vector, VectorResult
from torchstone.sweep.run import MODULE_ENTRY, OP_ENTRY, Canary, Runner, RunPolicy, result_of


def named(name: str, **changes: object) -> Vector:
    return vector(mm(), id=name, **changes)


def last(
    executor: ScriptedExecutor, *vectors: Vector, canary: Canary | None = None, **policy: object
) -> dict[str, VectorResult]:
    """The last that was told of each vector."""
    runner = Runner(executor, RunPolicy(**policy), canary)  # type: ignore[arg-type]
    return {result.id: result for result in runner.results(list(vectors))}


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (Ending.CRASHED, Outcome.CRASHED),
        (Ending.TIMED_OUT, Outcome.TIMED_OUT),
        (Ending.OUT_OF_MEMORY, Outcome.OUT_OF_MEMORY),
        (Ending.NO_ANSWER, Outcome.CRASHED),
        (Ending.RAISED, Outcome.RAISED),
    ],
)
def test_the_ending_of_a_process_is_told_apart(ending: Ending, outcome: Outcome) -> None:
    found = result_of(named("a"), died("a", ending))

    assert (found.outcome, found.signal) == (outcome, "SIGSEGV")


def test_an_answer_is_told_with_its_verdict_and_times() -> None:
    answer = {
        "outcome": "wrong",
        "detail": "PCC",
        "verdict": {"passed": False},
        "timing": {"median_s": 1.0, "mad_s": 0.1, "runs": 3},
    }

    found = result_of(named("a"), answered("a", answer))

    assert (found.status, found.detail, found.verdict) == (Status.FAIL_ASSERT_EXCEPTION, "PCC", {"passed": False})
    assert found.timing is not None
    assert found.timing.median_s == 1.0


def test_every_vector_is_told_also_those_that_are_not_valid() -> None:
    found = last(ScriptedExecutor(), named("a"), named("b", validity=Validity.INVALID, reason="why"), named("c"))

    assert {name: one.status for name, one in found.items()} == {
        "a": Status.PASS,
        "b": Status.NOT_RUN,
        "c": Status.PASS,
    }
    assert found["b"].detail == "why"


def test_what_died_is_run_again_and_flaky_when_it_then_passes() -> None:
    executor = ScriptedExecutor({"a": [died("a")]})

    found = last(executor, named("a"), retries=1)["a"]

    assert (found.outcome, found.flaky) == (Outcome.PASSED, True)
    assert [one.outcome for one in found.attempts] == [Outcome.CRASHED, Outcome.PASSED]


def test_what_dies_every_time_is_not_flaky() -> None:
    executor = ScriptedExecutor({"a": [died("a"), died("a")]})

    found = last(executor, named("a"), retries=1, probes=False)["a"]

    assert (found.outcome, found.flaky, len(found.attempts)) == (Outcome.CRASHED, False, 2)


def test_a_wrong_result_is_run_again_only_where_asked_for() -> None:
    def wrong() -> dict[str, list[TaskResult]]:
        return {"a": [answered("a", {"outcome": "wrong", "detail": "PCC"})]}

    once = last(ScriptedExecutor(wrong()), named("a"))["a"]
    again = last(ScriptedExecutor(wrong()), named("a"), retry_all=True)["a"]

    assert (once.outcome, len(once.attempts)) == (Outcome.WRONG, 1)
    assert (again.outcome, again.flaky) == (Outcome.PASSED, True)


def test_a_backend_is_not_blamed_for_what_ends_eager_pytorch_itself() -> None:
    executor = ScriptedExecutor({"a": [died("a")], "reference of a": [died("reference of a", signal="SIGFPE")]})

    found = last(executor, named("a"), retries=0)["a"]

    assert found.status is Status.NOT_RUN
    assert "SIGFPE" in found.detail
    assert found.attempts[0].outcome is Outcome.CRASHED


def test_a_backend_is_blamed_when_eager_pytorch_lives() -> None:
    executor = ScriptedExecutor({"a": [died("a")]})

    assert last(executor, named("a"), retries=0)["a"].outcome is Outcome.CRASHED
    assert [task.id for task in executor.submitted] == ["a", "reference of a"]
    assert executor.submitted[1].payload["only_reference"] is True


def test_when_the_canary_dies_nobody_is_blamed_and_nothing_more_runs() -> None:
    executor = ScriptedExecutor({"b": [died("b")], "canary 1": [died("canary 1")]})
    canary = Canary(entry=OP_ENTRY, extra={}, deadline_s=1.0)
    runner = Runner(executor, RunPolicy(retries=0, window=1, probes=False), canary)

    found = {result.id: result for result in runner.results([named("a"), named("b"), named("c"), named("d")])}

    assert {name: one.status.value for name, one in found.items()} == {
        "a": "PASS",
        "b": "NOT_RUN",
        "c": "PASS",  # it ran before the canary was heard of
        "d": "NOT_RUN",
    }
    assert runner.aborted
    assert "always works" in found["d"].detail


def test_a_canary_that_lives_leaves_the_blame_where_it_is() -> None:
    executor = ScriptedExecutor({"a": [died("a")]})
    canary = Canary(entry=OP_ENTRY, extra={}, deadline_s=1.0)

    found = last(executor, named("a"), named("b"), canary=canary, retries=0, probes=False)

    assert (found["a"].outcome, found["b"].outcome) == (Outcome.CRASHED, Outcome.PASSED)


def test_the_deadline_is_that_of_the_run_or_else_of_the_vector() -> None:
    executor = ScriptedExecutor()
    last(executor, named("a", timeout_s=7.0), named("b"))
    last(executor, named("c", timeout_s=7.0), timeout_s=3.0, memory_bytes=5)

    limits = {task.id: task.limits and task.limits.deadline_s for task in executor.submitted}
    assert limits == {"a": 7.0, "b": None, "c": 3.0}
    assert executor.submitted[-1].limits is not None
    assert executor.submitted[-1].limits.memory_bytes == 5


def test_vectors_of_modules_and_of_ops_have_their_own_entries() -> None:
    from msgspec.structs import replace

    executor = ScriptedExecutor()
    last(executor, named("a"), replace(named("b"), configuration=None))

    assert [task.entry for task in executor.submitted] == [OP_ENTRY, MODULE_ENTRY]


def test_no_more_vectors_are_handed_over_than_the_window_holds() -> None:
    executor = ScriptedExecutor()
    waiting = iter(Runner(executor, RunPolicy(window=2)).results([named(name) for name in "abcdef"]))

    next(waiting)

    assert len(executor.submitted) == 2
    assert len(list(waiting)) == 5


@pytest.mark.parametrize(
    "error", ["OSError: [Errno 28] No space left on device", "OSError: [Errno 24] Too many open files"]
)
def test_an_exhausted_machine_is_not_a_verdict_on_the_call(error: str) -> None:
    task = TaskResult(id="a", ending=Ending.RAISED, evidence=Evidence(error=error))

    assert result_of(named("a"), task).outcome is Outcome.NOT_RUN

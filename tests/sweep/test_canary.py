import sys

from tests.sweep.builders import answered, died, result, vector
from torchstone.record.check import Outcome
from torchstone.sweep.child.run import run_vector
from torchstone.sweep.run import Canary, is_canary

TRUE, FALSE = (sys.executable, "-c", "pass"), (sys.executable, "-c", "raise SystemExit(4)")


def canary(reset: tuple[str, ...] = ()) -> Canary:
    return Canary(entry="child:run", extra={"backend": "eager"}, deadline_s=5.0, reset_command=reset)


def test_the_call_of_a_canary_passes_on_eager_pytorch() -> None:
    task = canary().task_after(vector(), result("a", Outcome.CRASHED))

    assert is_canary(task.id)
    assert run_vector(task.payload)["outcome"] == "passed"


def test_who_died_is_forgotten_when_the_canary_lives() -> None:
    one = canary()
    task = one.task_after(vector(), result("a", Outcome.CRASHED))

    assert not one.judge(answered(task.id, {"outcome": "passed"})).fault
    assert one.judge(died("canary 2")).blamed == ()


def test_a_dead_canary_clears_those_who_died() -> None:
    one = canary()
    one.task_after(vector(), result("a", Outcome.CRASHED))

    verdict = one.judge(died("canary 1"))

    assert [told.id for _, told in verdict.blamed] == ["a"]
    assert "SIGSEGV" in verdict.fault


def test_the_device_is_reset_once_and_the_canary_sent_again() -> None:
    one = canary(TRUE)
    one.task_after(vector(), result("a", Outcome.CRASHED))

    first = one.judge(died("canary 1"))
    second = one.judge(died("canary 2"))

    assert first.send_again is not None
    assert not first.fault
    assert second.fault
    assert one.resets == 1


def test_a_reset_that_fails_is_told() -> None:
    assert "exit code 4" in canary(FALSE).judge(died("canary 1")).fault
    assert "no-such-command" in canary(("no-such-command",)).judge(died("canary 1")).fault


def test_a_canary_that_answers_wrong_is_a_fault_too() -> None:
    assert "PCC" in canary().judge(answered("canary 1", {"outcome": "wrong", "detail": "PCC 0"})).fault

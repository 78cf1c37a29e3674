import signal
from collections.abc import Iterator

import pytest

from tests.workers.building import task
from torchstone.record.task import Ending, Limits
from torchstone.workers.lane import Exit, Job, Lane, Message, answered, cancelled, describe_exit, result_of_exit

JOB = Job.of(task("echo"), Limits())


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = Lane(1, room=1, now_s=0.0)
    made.resident_before_bytes = 100
    yield made
    made.close()


@pytest.mark.parametrize(
    ("end", "ending"),
    [
        (Exit(code=0), Ending.NO_ANSWER),
        (Exit(code=1), Ending.CRASHED),
        (Exit(code=-signal.SIGSEGV), Ending.CRASHED),
        (Exit(code=-signal.SIGKILL), Ending.CRASHED),
        (Exit(code=-signal.SIGKILL, memory_ran_out=True), Ending.OUT_OF_MEMORY),
        (Exit(code=-signal.SIGSEGV, memory_ran_out=True), Ending.CRASHED),
        (Exit(code=None, note="it could not be killed"), Ending.CRASHED),
    ],
)
def test_the_exit_says_how_it_ended(lane: Lane, end: Exit, ending: Ending) -> None:
    result = result_of_exit(lane, JOB, end, elapsed_s=1.5)

    assert (result.id, result.ending, result.elapsed_s) == ("echo", ending, 1.5)
    assert result.evidence.error


def test_why_it_was_stopped_counts_more_than_how(lane: Lane) -> None:
    lane.stopped_for, lane.stopped_because = Ending.TIMED_OUT, "too slow"
    result = result_of_exit(lane, JOB, Exit(code=-signal.SIGKILL, memory_ran_out=True), elapsed_s=1.0)

    assert (result.ending, result.evidence.error, result.evidence.signal) == (Ending.TIMED_OUT, "too slow", "SIGKILL")


@pytest.mark.parametrize(("said", "ending"), [(b"std::bad_alloc", Ending.OUT_OF_MEMORY), (b"assert", Ending.CRASHED)])
def test_an_abort_for_want_of_memory_is_told_by_its_words(lane: Lane, said: bytes, ending: Ending) -> None:
    lane.output.feed(b"terminate called after throwing an instance of '" + said + b"'\n")

    assert result_of_exit(lane, JOB, Exit(code=-signal.SIGABRT), elapsed_s=1.0).ending is ending


def test_half_an_answer_is_mentioned(lane: Lane) -> None:
    lane.unread += b'{"answer": '
    error = result_of_exit(lane, JOB, Exit(code=0), elapsed_s=1.0).evidence.error

    assert error == "it left with exit code 0 and without an answer (11 bytes of an answer had come)"


def test_the_peak_is_what_the_task_added(lane: Lane) -> None:
    assert result_of_exit(lane, JOB, Exit(code=1, peak_bytes=150), elapsed_s=1.0).evidence.peak_bytes == 50
    assert answered(lane, JOB, Message(peak_bytes=170)).evidence.peak_bytes == 70


def test_the_peak_of_a_later_task_in_a_process_is_not_known(lane: Lane) -> None:
    lane.done = 1

    assert answered(lane, JOB, Message(peak_bytes=170)).evidence.peak_bytes is None
    assert result_of_exit(lane, JOB, Exit(code=1, peak_bytes=150), elapsed_s=1.0).evidence.peak_bytes is None


@pytest.mark.parametrize(("lack", "ending"), [(True, Ending.OUT_OF_MEMORY), (False, Ending.RAISED)])
def test_an_error_is_raised_or_a_lack_of_memory(lane: Lane, *, lack: bool, ending: Ending) -> None:
    result = answered(lane, JOB, Message(error="E: x", out_of_memory=lack))

    assert (result.ending, result.answer, result.evidence.error) == (ending, None, "E: x")


def test_a_cancelled_task_has_no_answer() -> None:
    assert (cancelled(JOB).ending, cancelled(JOB).answer) == (Ending.CANCELLED, None)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "left with exit code 0"),
        (-11, "was ended by SIGSEGV"),
        (-40, "was ended by signal 40"),
        (None, "ended without a trace"),
    ],
)
def test_an_exit_in_words(code: int | None, words: str) -> None:
    assert describe_exit(code) == words

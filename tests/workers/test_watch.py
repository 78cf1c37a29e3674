import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.workers.building import MIB, pool, run_all, task
from torchstone.record.task import Ending, Limits
from torchstone.workers import limits
from torchstone.workers.lane import Job, Lane
from torchstone.workers.limits import (
    CENSUS_S,
    QUIET_S,
    SHOWING_S,
    Member,
    Usage,
    Watch,
    breach,
    end_of_patience,
    has_shown,
)


@pytest.fixture
def lane() -> Iterator[Lane]:
    """A lane whose process is this one, with a task that began at second 10."""
    made = Lane(1, room=1, now_s=0.0)
    made.pid = os.getpid()
    made.give(Job.of(task("echo"), Limits(deadline_s=5)), now_s=10.0)
    yield made
    made.close()


@pytest.fixture
def leader() -> Iterator[int]:
    """A process that waits, the first of a session of its own."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process.pid


def used(cpu_s: float, waited_s: float, monkeypatch: pytest.MonkeyPatch) -> Usage:
    """What a task of one thread has used since it began."""
    monkeypatch.setattr(limits, "_waited_s", lambda _: {1: waited_s})
    usage = Usage()
    usage.look({1: Member(threads=1, cpu_s=cpu_s, reaped_cpu_s=0.0)})
    return usage


@pytest.mark.parametrize(
    ("now_s", "cpu_s", "waited_s", "ending"),
    [
        (14.0, 4.0, 0.0, None),  # the deadline is at second 15
        (17.0, 7.0, 0.0, Ending.TIMED_OUT),  # it computes all the time
        (17.0, 0.0, 0.0, Ending.TIMED_OUT),  # it sleeps
        (17.0, 1.0, 6.0, None),  # others have the CPU
        (60.0, 6.0, 44.0, Ending.TIMED_OUT),  # it had its share in the end
        (17.0, 7.0, 20.0, Ending.TIMED_OUT),  # two threads that compute, and wait for each other
        (370.0, 1.0, 359.0, Ending.TOO_BUSY),
    ],
)
def test_a_deadline_does_not_count_the_time_that_others_have_the_cpu(
    lane: Lane, monkeypatch: pytest.MonkeyPatch, now_s: float, cpu_s: float, waited_s: float, ending: Ending | None
) -> None:
    assert end_of_patience(lane, used(cpu_s, waited_s, monkeypatch), now_s) is ending


def test_what_an_earlier_task_of_the_process_used_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = used(30.0, 40.0, monkeypatch)
    usage.restart()

    assert usage.cpu_s == 0.0
    assert usage.fair_s(3.0) == 3.0


def test_a_hanging_task_may_say_where_it_hangs_until_it_falls_silent(lane: Lane) -> None:
    lane.output.feed(b"before it was asked")
    lane.ask_where_it_hangs(20.0)
    assert not has_shown(lane, 20.5)

    lane.output.feed(b"in this line")
    assert not has_shown(lane, 20.6)
    lane.output.feed(b"of that file")
    assert not has_shown(lane, 20.7)
    assert has_shown(lane, 20.7 + 2 * QUIET_S)


def test_a_hanging_task_that_says_nothing_is_not_waited_for_long(lane: Lane) -> None:
    lane.ask_where_it_hangs(20.0)

    assert not has_shown(lane, 20.0 + SHOWING_S)
    assert has_shown(lane, 20.1 + SHOWING_S)


def test_within_its_memory_a_lane_runs_on(lane: Lane) -> None:
    assert breach(lane, 100_000 * MIB) is None
    assert breach(lane, None) is None


def test_beyond_its_memory_it_is_stopped(lane: Lane) -> None:
    found = breach(lane, MIB)

    assert found is not None
    assert found[0] is Ending.OUT_OF_MEMORY
    assert found[1].endswith("and was allowed 1.00 MiB")


def test_what_was_there_before_does_not_count(lane: Lane) -> None:
    lane.resident_before_bytes = lane.own_before_bytes = 100_000 * MIB

    assert breach(lane, MIB) is None


def test_mapped_files_do_not_count(lane: Lane) -> None:
    lane.own_before_bytes = 100_000 * MIB  # the quick look finds too much, the exact one does not

    assert breach(lane, MIB) is None


def test_too_many_threads_are_stopped(lane: Lane) -> None:
    lane.members = {1: 400, 2: 700}

    assert breach(lane, None) == (Ending.CRASHED, "it had 1,100 threads in 2 processes; 1,000 are allowed")


def test_the_census_is_taken_now_and_then(lane: Lane, leader: int) -> None:
    seen = Watch()
    lane.pid = leader
    seen.take_census([lane], 100.0)
    assert lane.members == {leader: 1}

    lane.members = {}
    seen.take_census([lane], 100.0 + CENSUS_S / 2)
    assert lane.members == {}
    seen.take_census([lane], 100.0 + 2 * CENSUS_S)
    assert lane.members == {leader: 1}


def test_a_task_that_starts_process_after_process_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_THREADS", 20)
    with pool() as workers:
        found = run_all(workers, [task("starts_many_processes", {"count": 60}), task("echo")])

    assert found["starts_many_processes"].ending is Ending.CRASHED
    assert "20 are allowed" in (found["starts_many_processes"].evidence.error or "")
    assert found["echo"].ending is Ending.ANSWERED

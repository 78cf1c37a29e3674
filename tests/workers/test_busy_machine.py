"""Deadlines next to processes that take the CPU: real ones, several for each CPU."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.building import pool, run_all, task
from torchstone.record.task import Ending, Limits

SPINNERS_PER_CPU = 3


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """As many endless loops as take most of every CPU."""
    count = SPINNERS_PER_CPU * len(os.sched_getaffinity(0))
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.usefixtures("busy_machine")
def test_a_task_that_is_given_little_cpu_time_is_not_timed_out() -> None:
    needs = task("computes", {"seconds": 1.0}, Limits(deadline_s=1.3, retries_timeout=False))
    with pool(jobs=1) as workers:
        found = run_all(workers, [needs])

    assert found["computes"].ending is Ending.ANSWERED  # it took three times its deadline, and more


@pytest.mark.usefixtures("busy_machine")
def test_a_hang_is_found_whether_it_sleeps_or_computes() -> None:
    limits = Limits(deadline_s=0.5, retries_timeout=False)
    with pool(jobs=2) as workers:
        found = run_all(workers, [task("hangs", limits=limits), task("computes", {"seconds": 10_000}, limits)])

    assert {name: result.ending for name, result in found.items()} == dict.fromkeys(found, Ending.TIMED_OUT)


def test_a_task_that_times_out_runs_once_more_before_it_is_reported(tmp_path: Path) -> None:
    limits = Limits(deadline_s=0.5)
    with pool(jobs=2) as workers:
        found = run_all(
            workers,
            [
                task("hangs_at_first", {"note": str(tmp_path / "note")}, limits),
                task("hangs", limits=limits),
                task("echo", {"a": 1}),
            ],
        )

    assert {name: result.ending for name, result in found.items()} == {
        "hangs_at_first": Ending.ANSWERED,
        "hangs": Ending.TIMED_OUT,
        "echo": Ending.ANSWERED,
    }


def test_the_second_run_has_the_pool_for_itself(tmp_path: Path) -> None:
    note = tmp_path / "times"
    payload = {"seconds": 0.05, "note": str(note)}
    late = task("hangs_at_first", {"note": str(tmp_path / "first")}, Limits(deadline_s=0.2))
    with pool(jobs=3) as workers:
        workers.submit(late)
        for number in range(12):
            workers.submit(task("notes_its_time", payload, id=f"beside {number}"))
        ended = [result.id for result in workers.results()]

    assert ended[-1] == "hangs_at_first"  # everything else had ended before it began again
    assert len(note.read_text().splitlines()) == 12

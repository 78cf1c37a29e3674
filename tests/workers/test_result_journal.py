"""What every command that resumes relies on: a run that is killed and started again ends like one that is not."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.building import FOLDER, pool, task
from torchstone.record.task import Ending, Task, TaskResult
from torchstone.workers.executor import Executor
from torchstone.workers.journal import ResultJournal, read_results

FAULTS = ("raises", "segfaults", "aborts", "answers_half")
PROGRAM = """
import sys
from pathlib import Path
from tests.workers.building import pool
from tests.workers.test_result_journal import run_all, tasks_with_faults
with pool(jobs=2) as workers:
    for result in run_all(workers, tasks_with_faults(), Path(sys.argv[1])):
        print(result.id, flush=True)
"""


def run_all(executor: Executor, tasks: list[Task], path: Path) -> Iterator[TaskResult]:
    """As check and sweep do it: ask the journal first, run the rest, keep each result before anything else."""
    with ResultJournal(path, TaskResult) as journal:
        for one in tasks:
            if (known := journal.find(one.id)) is not None:
                yield known
            else:
                executor.submit(one)
        for result in executor.results():
            if result.ending is not Ending.CANCELLED:
                journal.keep(result.id, result)
            yield result


def tasks_with_faults() -> list[Task]:
    sound = [task("echo", {"number": number}, id=f"{number:02}") for number in range(40)]
    return [*sound, *(task(name) for name in FAULTS)]


def without_times(results: dict[str, TaskResult]) -> dict[str, object]:
    """What two runs of the same tasks must agree in."""
    return {
        id_: (result.ending, result.answer, result.evidence.signal, result.evidence.error)
        for id_, result in results.items()
    }


def kept_in(path: Path) -> dict[str, TaskResult]:
    return read_results(path, TaskResult)


def undisturbed(path: Path) -> dict[str, TaskResult]:
    with pool() as workers:
        return {result.id: result for result in run_all(workers, tasks_with_faults(), path)}


def test_a_result_is_found_the_moment_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with ResultJournal(path, TaskResult) as journal:
        assert journal.find("a") is None
        result = TaskResult(id="a", ending=Ending.ANSWERED, answer={"n": 1})
        journal.keep("a", result)

        assert "a" in journal
        assert journal.find("a") == result
        assert kept_in(path) == {"a": result}


def test_a_journal_that_is_not_there_holds_no_results(tmp_path: Path) -> None:
    assert kept_in(tmp_path / "none") == {}


def test_a_later_result_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for answer in (1, 2):
        with ResultJournal(path, TaskResult) as journal:
            journal.keep("a", TaskResult(id="a", ending=Ending.ANSWERED, answer=answer))

    assert [one.answer for one in kept_in(path).values()] == [2]


def test_what_is_in_the_journal_is_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = undisturbed(path)
    before = path.read_bytes()

    assert undisturbed(path) == first
    assert path.read_bytes() == before


def test_cancelled_tasks_are_run_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with pool(jobs=1) as workers:
        results = run_all(workers, tasks_with_faults(), path)
        next(results)
        workers.cancel()
        cancelled = [result.id for result in results if result.ending is Ending.CANCELLED]

    assert cancelled
    assert set(kept_in(path)).isdisjoint(cancelled)
    assert set(undisturbed(path)) == {each.id for each in tasks_with_faults()}


def kill_and_resume(folder: Path, kills: int) -> dict[str, TaskResult]:
    """Kill the run at random moments, then let it come to its end."""
    chance = random.Random(6)  # noqa: S311 - moments, not secrets
    path = folder / "journal"
    command = [sys.executable, "-c", PROGRAM, str(path)]
    for _ in range(kills):
        run = subprocess.Popen(command, cwd=FOLDER.parent.parent, stdout=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.1, 0.6))
        run.send_signal(signal.SIGKILL)
        run.wait()
    subprocess.run(command, cwd=FOLDER.parent.parent, stdout=subprocess.DEVNULL, check=True)
    return kept_in(path)


def test_a_run_that_is_killed_again_and_again_ends_like_one_that_is_not(tmp_path: Path) -> None:
    assert without_times(kill_and_resume(tmp_path, 4)) == without_times(undisturbed(tmp_path / "other"))


@pytest.mark.heavy
def test_a_run_that_is_killed_fifty_times_ends_like_one_that_is_not(tmp_path: Path) -> None:
    assert without_times(kill_and_resume(tmp_path, 50)) == without_times(undisturbed(tmp_path / "other"))

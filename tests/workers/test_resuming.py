import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.workers.building import FOLDER, pool, task
from torchstone.record.task import Ending, Task, TaskResult
from torchstone.workers import resuming
from torchstone.workers.journal import Journal
from torchstone.workers.resuming import run_journaled

FAULTS = ("raises", "segfaults", "aborts", "answers_half")
PROGRAM = """
import sys
from collections.abc import Iterator
from pathlib import Path
from tests.workers.building import pool
from tests.workers.test_resuming import tasks_with_faults
from torchstone.workers.resuming import run_journaled
with pool(jobs=2) as workers:
    for result in run_journaled(workers, tasks_with_faults(), Path(sys.argv[1])):
        print(result.id, flush=True)
"""


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
    return {key: msgspec.convert(document, TaskResult) for key, document in Journal.read(path).items()}


def undisturbed(path: Path) -> dict[str, TaskResult]:
    with pool() as workers:
        return {result.id: result for result in run_journaled(workers, tasks_with_faults(), path)}


def test_a_result_is_in_the_journal_before_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with pool() as workers:
        told = run_journaled(workers, [task("echo", {"a": 1}), task("segfaults")], path)
        first = next(told)

        assert kept_in(path) == {first.id: first}
        assert len(list(told)) == 1


def test_what_is_in_the_journal_is_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = undisturbed(path)
    before = path.read_bytes()

    assert undisturbed(path) == first
    assert path.read_bytes() == before


def test_no_more_tasks_are_handed_out_than_are_wanted_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "TASKS_AHEAD", 3)
    taken: list[str] = []

    def counted() -> Iterator[Task]:
        for each in tasks_with_faults():
            taken.append(each.id)
            yield each

    with pool() as workers:
        told = run_journaled(workers, counted(), tmp_path / "journal")
        next(told)
        assert len(taken) == 3
        assert len(list(told)) == len(tasks_with_faults()) - 1


def test_cancelled_tasks_are_run_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with pool(jobs=1) as workers:
        told = run_journaled(workers, tasks_with_faults(), path)
        next(told)
        workers.cancel()
        cancelled = [result.id for result in told if result.ending is Ending.CANCELLED]

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

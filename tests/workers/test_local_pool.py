import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.building import MIB, alive, pool, run_all, task
from torchstone.errors import WorkerError
from torchstone.record.task import Ending, Limits
from torchstone.workers.local_pool import LocalPool

QUICK = Limits(deadline_s=0.5, memory_bytes=400 * MIB)


@pytest.fixture(scope="module")
def workers() -> Iterator[LocalPool]:
    """One pool for all: what one test's task does must not harm the next."""
    with pool() as shared:
        yield shared


def wait_until_gone(*pids: int) -> list[int]:
    """The processes that are still there after a moment of patience."""
    until = time.monotonic() + 5
    while time.monotonic() < until and any(alive(pid) for pid in pids):
        time.sleep(0.01)
    return [pid for pid in pids if alive(pid)]


def test_a_task_is_answered(workers: LocalPool) -> None:
    (result,) = run_all(workers, [task("echo", {"a": [1, 2.5, None, "ü"]})]).values()

    assert (result.ending, result.answer) == (Ending.ANSWERED, {"a": [1, 2.5, None, "ü"]})
    assert result.evidence.error is None


@pytest.mark.parametrize(
    ("name", "payload", "ending", "signal", "code"),
    [
        ("raises", {}, Ending.RAISED, None, None),
        ("leaves", {}, Ending.RAISED, None, None),
        ("segfaults", {}, Ending.CRASHED, "SIGSEGV", None),
        ("aborts", {}, Ending.CRASHED, "SIGABRT", None),
        ("kills_itself", {}, Ending.CRASHED, "SIGKILL", None),
        ("exits", {"code": 3}, Ending.CRASHED, None, 3),
        ("exits", {"code": 0}, Ending.NO_ANSWER, None, 0),
        ("answers_half", {}, Ending.NO_ANSWER, None, 0),
        ("answers_nonsense", {}, Ending.NO_ANSWER, "SIGKILL", None),
        ("returns_a_set", {}, Ending.RAISED, None, None),
        ("returns_nan", {}, Ending.RAISED, None, None),
        ("cannot_allocate", {}, Ending.OUT_OF_MEMORY, None, None),
        ("blows_up", {}, Ending.OUT_OF_MEMORY, "SIGKILL", None),
        ("bombs_with_threads", {}, Ending.CRASHED, "SIGKILL", None),
    ],
)
def test_a_fault_has_its_own_ending_and_the_next_task_is_unharmed(
    workers: LocalPool, name: str, payload: dict[str, int], ending: Ending, signal: str | None, code: int | None
) -> None:
    found = run_all(workers, [task(name, payload), task("echo", {"still": "here"})])

    evidence = found[name].evidence
    assert (found[name].ending, evidence.signal, evidence.exit_code) == (ending, signal, code)
    assert evidence.error
    assert found["echo"].answer == {"still": "here"}


def test_a_task_past_its_deadline_is_killed_and_shows_where_it_hung(workers: LocalPool) -> None:
    before = time.monotonic()
    found = run_all(workers, [task("hangs", limits=QUICK), task("echo")])

    assert time.monotonic() - before < QUICK.deadline_s + 3
    assert found["hangs"].ending is Ending.TIMED_OUT
    assert found["hangs"].evidence.error == "it had not answered after 0.5 s"
    assert "sleeps_in_vain" in found["hangs"].evidence.last_output
    assert found["echo"].ending is Ending.ANSWERED


def test_a_task_that_listens_to_no_signal_is_killed_all_the_same(workers: LocalPool) -> None:
    assert run_all(workers, [task("hangs_deaf", limits=QUICK)])["hangs_deaf"].ending is Ending.TIMED_OUT


def test_an_exception_comes_with_its_traceback(workers: LocalPool) -> None:
    result = run_all(workers, [task("raises", {"text": "not here"})])["raises"]

    assert result.evidence.error == "ValueError: not here"
    assert 'raise ValueError(payload.get("text"' in (result.evidence.traceback or "")


def test_all_that_is_printed_is_told_also_what_c_code_prints(workers: LocalPool) -> None:
    result = run_all(workers, [task("prints", {"out": "one", "err": "two"})])["prints"]

    assert sorted(result.evidence.last_output.splitlines()) == ["from C", "one", "two"]


def test_a_crash_shows_the_line_that_fell(workers: LocalPool) -> None:
    result = run_all(workers, [task("segfaults")])["segfaults"]

    assert result.evidence.last_output.startswith("about to fall\n")
    assert "in segfaults" in result.evidence.last_output


def test_a_flood_of_output_is_counted_and_not_kept(workers: LocalPool) -> None:
    flood_bytes = 256 * MIB
    found = run_all(workers, [task("floods", {"bytes": flood_bytes}), task("echo")])

    evidence = found["floods"].evidence
    assert found["floods"].answer == "done"
    assert evidence.output_bytes == flood_bytes + len("the beginning\n\nthe end\n")
    assert len(evidence.last_output) < 20_000
    assert evidence.last_output.startswith("the beginning\n")
    assert evidence.last_output.endswith("\nthe end\n")


def test_the_peak_is_that_of_the_task_alone(workers: LocalPool) -> None:
    found = run_all(workers, [task("echo"), task("blows_up")])

    assert (found["echo"].evidence.peak_bytes or 0) < 50 * MIB
    assert 350 * MIB < (found["blows_up"].evidence.peak_bytes or 0) < 2_000 * MIB


def test_memory_of_processes_that_a_task_starts_counts(workers: LocalPool) -> None:
    result = run_all(workers, [task("blows_up_in_a_process_of_its_own")])["blows_up_in_a_process_of_its_own"]

    assert result.ending is Ending.OUT_OF_MEMORY


def test_memory_shared_with_a_fork_counts_once(workers: LocalPool) -> None:
    sharing = task("shares_memory_with_a_fork", {"bytes": 250 * MIB, "seconds": 0.8})

    assert run_all(workers, [sharing])["shares_memory_with_a_fork"].ending is Ending.ANSWERED


def test_each_task_leads_a_session_of_its_own_and_none_has_run_before(workers: LocalPool) -> None:
    found = run_all(workers, [task("where", id=str(number)) for number in range(6)])
    places = [result.answer or {} for result in found.values()]

    assert len({place["pid"] for place in places}) == 6
    assert {(place["group"], place["session"]) for place in places} == {
        (place["pid"], place["pid"]) for place in places
    }
    assert os.getsid(0) not in {place["session"] for place in places}


def test_what_a_task_leaves_running_is_killed(workers: LocalPool) -> None:
    pids = run_all(workers, [task("leaves_processes_behind")])["leaves_processes_behind"].answer or []

    assert len(pids) == 2
    assert wait_until_gone(*pids) == []


def test_what_a_hanging_task_had_started_is_killed_with_it(workers: LocalPool, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    result = run_all(workers, [task("leaves_processes_behind", {"hang": True, "note": str(note)}, QUICK)])

    assert result["leaves_processes_behind"].ending is Ending.TIMED_OUT
    assert wait_until_gone(*map(int, note.read_text().split())) == []


def test_tasks_may_be_submitted_while_results_are_read(workers: LocalPool) -> None:
    workers.submit(task("echo", {"left": 3}))
    seen = []
    for result in workers.results():
        seen.append(result.answer["left"] if result.answer else None)
        if seen[-1]:
            workers.submit(task("echo", {"left": seen[-1] - 1}))

    assert seen == [3, 2, 1, 0]


def test_a_payload_that_is_no_json_is_refused_at_once(workers: LocalPool) -> None:
    with pytest.raises(ValueError, match="Out of range float values"):
        workers.submit(task("echo", {"a": float("nan")}))
    with pytest.raises(TypeError, match="not JSON serializable"):
        workers.submit(task("echo", {"a": {1}}))

    assert list(workers.results()) == []


def test_a_large_payload_and_a_large_answer_go_through(workers: LocalPool) -> None:
    text = "x" * (3 * MIB)

    assert run_all(workers, [task("echo", {"text": text})])["echo"].answer == {"text": text}


def test_a_killed_zygote_is_started_again_and_the_running_task_is_told_as_crashed() -> None:
    with pool(jobs=1) as workers:
        found = run_all(workers, [task("echo", id="before"), task("kills_the_zygote"), task("echo", id="after")])

    assert found["kills_the_zygote"].ending is Ending.CRASHED
    assert found["kills_the_zygote"].evidence.error == "the process that had started it was ended by SIGKILL"
    assert {found["before"].ending, found["after"].ending} == {Ending.ANSWERED}


def test_cancelling_ends_what_runs_and_what_waits() -> None:
    with pool(jobs=1) as workers:
        for name in ("echo", "hangs", "where"):
            workers.submit(task(name))
        found = {}
        for result in workers.results():
            found[result.id] = result.ending
            if len(found) == 1:
                workers.cancel()

    assert found == {"echo": Ending.ANSWERED, "hangs": Ending.CANCELLED, "where": Ending.CANCELLED}


@pytest.mark.parametrize("forks", [True, False])
def test_the_environment_is_set_up_once_before_the_tasks(*, forks: bool) -> None:
    with pool(setup="faulty_tasks:set_up", setup_payload={"value": "blue"}, forks=forks) as workers:
        assert run_all(workers, [task("was_set_up")])["was_set_up"].answer == "blue"


@pytest.mark.parametrize("forks", [True, False])
def test_a_set_up_that_raises_is_one_clear_error(*, forks: bool) -> None:
    with (
        pool(setup="faulty_tasks:set_up", setup_payload={"text": "no device"}, forks=forks) as workers,
        pytest.raises(WorkerError, match=r"(?s)failed at calling faulty_tasks:set_up: RuntimeError: no device.*today"),
    ):
        run_all(workers, [task("echo")])


@pytest.mark.parametrize("forks", [True, False])
def test_a_set_up_that_falls_is_one_clear_error(*, forks: bool) -> None:
    with (
        pool(setup="faulty_tasks:set_up", setup_payload={"fall": True}, forks=forks) as workers,
        pytest.raises(WorkerError, match=r"(?s)the worker process of .*the device burns"),
    ):
        run_all(workers, [task("echo")])


def test_a_module_that_is_missing_there_is_one_clear_error() -> None:
    with (
        pool(preload=("no_such_module",)) as workers,
        pytest.raises(WorkerError, match="failed at importing no_such_module: ModuleNotFoundError"),
    ):
        workers.wait_until_ready()


def test_a_missing_interpreter_is_one_clear_error() -> None:
    with pytest.raises(WorkerError, match=r"cannot start /no/such/python: No such file or directory"):
        pool(python="/no/such/python")

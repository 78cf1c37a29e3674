import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.building import MIB, environment, pool, run_all, task, wait_for, wait_until_gone
from torchstone.errors import WorkerError
from torchstone.record.task import Ending, Limits
from torchstone.workers import limits, local_pool
from torchstone.workers.local_pool import LocalPool

QUICK = Limits(deadline_s=0.5, memory_bytes=200 * MIB)


@pytest.fixture(scope="module")
def workers() -> Iterator[LocalPool]:
    """One pool for all: what one test's task does must not harm the next."""
    with pool() as shared:
        yield shared


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


def test_a_task_that_starts_thread_after_thread_is_stopped(workers: LocalPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_THREADS", 50)
    found = run_all(workers, [task("bombs_with_threads"), task("echo")])

    assert found["bombs_with_threads"].ending is Ending.CRASHED
    assert found["bombs_with_threads"].evidence.signal == "SIGKILL"
    assert found["echo"].ending is Ending.ANSWERED


def test_a_task_past_its_deadline_is_killed_and_shows_where_it_hung(workers: LocalPool) -> None:
    found = run_all(workers, [task("hangs", limits=QUICK), task("echo")])

    assert found["hangs"].ending is Ending.TIMED_OUT
    assert (found["hangs"].evidence.error or "").startswith("it had not answered after 0.5 s (0.")
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


@pytest.mark.parametrize("flood_bytes", [128 * MIB, pytest.param(1024 * MIB, marks=pytest.mark.heavy)])
def test_a_flood_of_output_is_counted_and_not_kept(workers: LocalPool, flood_bytes: int) -> None:
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
    assert 150 * MIB < (found["blows_up"].evidence.peak_bytes or 0) < 2_000 * MIB  # all that it takes are 1,600


def test_memory_of_processes_that_a_task_starts_counts(workers: LocalPool) -> None:
    result = run_all(workers, [task("blows_up_in_a_process_of_its_own")])["blows_up_in_a_process_of_its_own"]

    assert result.ending is Ending.OUT_OF_MEMORY


def test_memory_shared_with_a_fork_counts_once(workers: LocalPool) -> None:
    sharing = task("shares_memory_with_a_fork", {"bytes": 120 * MIB, "seconds": 0.6})

    assert run_all(workers, [sharing])["shares_memory_with_a_fork"].ending is Ending.ANSWERED


def test_each_task_leads_a_session_of_its_own_and_none_has_run_before(workers: LocalPool) -> None:
    found = run_all(workers, [task("where", id=str(number)) for number in range(6)])
    places = [result.answer or {} for result in found.values()]

    assert len({place["pid"] for place in places}) == 6
    assert {(place["group"], place["session"]) for place in places} == {
        (place["pid"], place["pid"]) for place in places
    }


def test_what_a_task_leaves_running_is_killed(workers: LocalPool) -> None:
    pids = run_all(workers, [task("leaves_processes_behind")])["leaves_processes_behind"].answer or []

    assert len(pids) == 2
    assert wait_until_gone(*pids) == []


def test_what_a_hanging_task_had_started_is_killed_with_it(
    workers: LocalPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "pids"
    monkeypatch.setattr(local_pool, "end_of_patience", lambda *_: Ending.TIMED_OUT if note.exists() else None)
    result = run_all(workers, [task("leaves_processes_behind", {"hang": True, "note": str(note)})])

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


def test_a_zygote_that_hangs_is_replaced_and_other_tasks_are_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_pool, "KILL_PATIENCE_S", 0.5)
    with pool(jobs=2) as workers:
        tasks = [task("stops_the_zygote", limits=QUICK), task("hangs", {"seconds": 0.8}), task("echo")]
        found = run_all(workers, tasks)

    assert found["stops_the_zygote"].ending is Ending.TIMED_OUT
    assert {found["hangs"].ending, found["echo"].ending} == {Ending.ANSWERED}


def test_a_fork_from_a_process_with_threads_is_named_when_it_hangs() -> None:
    with pool(setup="faulty_tasks:set_up", setup_payload={"thread": True}) as workers:
        result = run_all(workers, [task("hangs", limits=QUICK)])["hangs"]

    assert "it was forked from a process with 2 threads" in (result.evidence.error or "")


def test_a_set_up_that_hangs_is_one_clear_error() -> None:
    hanging = environment(setup="faulty_tasks:set_up", setup_payload={"hang": True})
    with (
        LocalPool(hanging, start_limit_s=0.5) as workers,
        pytest.raises(WorkerError, match=r"was not ready after 0\.5 s"),
    ):
        workers.wait_until_ready()


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


def test_a_process_may_run_several_tasks_and_no_more_than_it_may() -> None:
    with pool(jobs=1, tasks_per_child=4) as workers:
        found = run_all(workers, [task("counts", id=str(number)) for number in range(10)])

    assert [result.answer for result in found.values()] == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert [result.evidence.peak_bytes is None for result in found.values()][:4] == [False, True, True, True]


def test_tasks_in_a_row_are_told_each_with_its_own_output() -> None:
    """Whoever reads the results is slow: the next tasks have printed before the answer of one is read."""
    found = {}
    with pool(jobs=1, tasks_per_child=16) as workers:
        for number in range(16):
            workers.submit(task("prints", {"out": f"out {number}", "err": f"err {number}"}, id=str(number)))
        for result in workers.results():
            found[result.id] = result.evidence.last_output
            time.sleep(0.02)

    assert found == {str(number): f"out {number}\nerr {number}\nfrom C\n" for number in range(16)}


def test_a_task_that_falls_in_a_process_with_a_past_is_judged_alone() -> None:
    """It falls only as the third one of a process; alone it does not."""
    with pool(jobs=1, tasks_per_child=5) as workers:
        found = run_all(workers, [task("counts", {"fall_at": 3}, id=str(number)) for number in range(6)])

    assert {result.ending for result in found.values()} == {Ending.ANSWERED}
    assert found["2"].answer == 1


def test_only_the_task_to_blame_falls_and_the_rest_are_run_again() -> None:
    tasks = [task("counts", id=str(number)) for number in range(12)]
    for place, name in ((5, "segfaults"), (2, "raises"), (8, "exits")):
        tasks[place] = task(name, {"code": 0}, id=str(place))
    with pool(jobs=2, tasks_per_child=6) as workers:
        found = run_all(workers, tasks)

    faults = {id_: result.ending for id_, result in found.items() if result.ending is not Ending.ANSWERED}
    assert faults == {"2": Ending.RAISED, "5": Ending.CRASHED, "8": Ending.NO_ANSWER}
    assert len(found) == 12


def test_a_hang_in_a_row_of_tasks_costs_its_deadline_and_no_other_task() -> None:
    tasks = [task("counts", id="0"), task("hangs", limits=QUICK), task("counts", id="2")]
    with pool(jobs=1, tasks_per_child=3) as workers:
        found = run_all(workers, tasks)

    assert found["hangs"].ending is Ending.TIMED_OUT
    assert {found["0"].ending, found["2"].ending} == {Ending.ANSWERED}


def test_where_forking_is_no_option_every_task_gets_a_fresh_process() -> None:
    names = ("segfaults", "hangs", "blows_up", "raises", "exits")
    faults = [task(name, {"code": 0}, QUICK if name == "hangs" else None) for name in names]
    with pool(forks=False) as workers:
        found = run_all(workers, [*faults, task("where"), task("counts")])

    assert [str(found[name].ending) for name in names] == [
        "crashed", "timed out", "out of memory", "raised", "no answer",
    ]  # fmt: skip
    assert found["counts"].answer == 1
    assert "torchstone.workers.zygote" not in (found["where"].answer or {})["modules"]


def test_a_fresh_process_is_warmed_up_before_it_is_needed(tmp_path: Path) -> None:
    with pool(jobs=1, forks=False, setup="faulty_tasks:set_up", setup_payload={"folder": str(tmp_path)}) as workers:
        first = run_all(workers, [task("where")])["where"].answer or {}
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2, "a second process to be set up")
        (warm,) = {path.name for path in tmp_path.iterdir()} - {str(first["pid"])}
        second = run_all(workers, [task("where")])["where"].answer or {}

    assert str(second["pid"]) == warm


def test_many_tasks_lose_nothing_and_leave_the_memory_as_it_was() -> None:
    def resident_kib() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    count = 2_000
    open_before = descriptors()
    with pool(jobs=2, tasks_per_child=50) as workers:
        run_all(workers, [task("counts", id=f"warm {number}") for number in range(200)])
        before = resident_kib()
        for number in range(count):
            workers.submit(task("counts", id=str(number)))
        seen = [int(result.id) for result in workers.results() if result.ending is Ending.ANSWERED]
        grown_kib = resident_kib() - before

    assert sorted(seen) == list(range(count))
    assert grown_kib < 32_768, "a lane that is kept holds a quarter of a MiB and more"
    assert descriptors() <= open_before


def test_a_task_that_the_system_kills_for_memory_runs_once_more_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any program of the machine may have used the memory; one that is killed again is out of memory."""
    kills = iter(range(1000))
    monkeypatch.setattr(local_pool, "killed_for_memory", lambda: next(kills))

    with pool() as workers:
        found = run_all(workers, [task("is_killed_at_first", {"mark": str(tmp_path / "mark")}), task("kills_itself")])

    assert (found["is_killed_at_first"].ending, found["is_killed_at_first"].answer) == (Ending.ANSWERED, "answered")
    assert found["kills_itself"].ending is Ending.OUT_OF_MEMORY


def test_a_task_that_another_process_kills_runs_again(workers: LocalPool, tmp_path: Path) -> None:
    found = run_all(workers, [task("is_killed_at_first", {"mark": str(tmp_path / "mark")})])

    assert found["is_killed_at_first"].answer == "answered"

import ast
import json
import os
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from tests.workers.building import (
    FOLDER,
    PATIENCE_S,
    alive,
    environment,
    pool,
    run_all,
    task,
    wait_for,
    wait_until_gone,
)
from torchstone.record.task import Ending, Environment
from torchstone.workers.launcher import ZYGOTE
from torchstone.workers.local_pool import LocalPool
from torchstone.workers.zygote import OLDEST_PYTHON

PARENT = """
import sys
from tests.workers.building import pool, task
with pool(jobs=2, forks={forks}) as workers:
    for number in range(2):
        workers.submit(task("writes_down_where_it_is", {{"folder": sys.argv[1]}}, id=str(number)))
    for result in workers.results():
        print(result)
"""
SETTING_UP = """
import sys
from tests.workers.building import pool
with pool(setup="faulty_tasks:set_up", setup_payload={"hang": True}) as workers:
    print(workers._launcher._process.pid, flush=True)
    workers.wait_until_ready()
"""


def running_parent(folder: Path, *, forks: bool = True) -> tuple[subprocess.Popen[str], list[int]]:
    """A program with a pool, and the ids of all processes that it has started."""
    command = [sys.executable, "-c", PARENT.format(forks=forks), str(folder)]
    parent = subprocess.Popen(command, cwd=FOLDER.parent.parent, stderr=subprocess.PIPE, text=True)

    def notes() -> list[Path]:
        return [path for path in folder.iterdir() if path.suffix != ".part"]

    wait_for(lambda: len(notes()) == 2, "both tasks to begin")
    return parent, sorted({int(pid) for path in notes() for pid in path.read_text().split()})


@pytest.mark.parametrize("forks", [True, False])
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_parent_however_it_ends(tmp_path: Path, ending: signal.Signals, *, forks: bool) -> None:
    parent, started = running_parent(tmp_path, forks=forks)
    assert len([pid for pid in started if alive(pid)]) == 5  # the zygote, two tasks, and what each started

    parent.send_signal(ending)
    parent.communicate()

    assert wait_until_gone(*started) == []


def test_nothing_outlives_a_parent_that_is_killed_during_the_set_up() -> None:
    command = [sys.executable, "-c", SETTING_UP]
    parent = subprocess.Popen(command, cwd=FOLDER.parent.parent, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        zygote = int(parent.stdout.readline())
    time.sleep(0.3)
    parent.kill()
    parent.wait()

    assert wait_until_gone(zygote) == []


def test_ctrl_c_during_the_set_up_ends_it_at_once() -> None:
    command = [sys.executable, "-c", SETTING_UP]
    parent = subprocess.Popen(
        command, cwd=FOLDER.parent.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    zygote = int(parent.stdout.readline())
    parent.send_signal(signal.SIGINT)
    parent.communicate(timeout=PATIENCE_S)  # the set-up would take longer

    assert wait_until_gone(zygote) == []


def test_a_process_that_left_its_session_is_killed_when_the_pool_closes() -> None:
    with pool() as workers:
        daemon = run_all(workers, [task("becomes_a_daemon")])["becomes_a_daemon"].answer
        assert isinstance(daemon, int)
        assert alive(daemon)

    assert wait_until_gone(daemon) == []


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has nothing but the standard library."""
    folder = tmp_path_factory.mktemp("foreign") / "venv"
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


@pytest.mark.parametrize("forks", [True, False])
def test_an_interpreter_without_torchstone_runs_tasks_and_nothing_of_ours_leaks_in(
    bare_python: Path, monkeypatch: pytest.MonkeyPatch, *, forks: bool
) -> None:
    monkeypatch.delenv("PYTHONPATH")
    with pool(python=str(bare_python), forks=forks) as workers:
        place = run_all(workers, [task("where")])["where"].answer or {}

    assert place["python"] == str(bare_python)
    foreign = [entry for entry in place["path"] if entry not in ("", str(FOLDER)) and "foreign" not in entry]
    assert [entry for entry in foreign if "site-packages" in entry or "torchstone" in entry] == []
    own = {name for name in place["modules"] if name.startswith("torchstone")}
    assert own >= {"torchstone", "torchstone.workers", "torchstone.workers.child"}
    assert own.isdisjoint({"torchstone.record", "torchstone.errors"})
    assert {"msgspec", "click", "torch", "numpy"}.isdisjoint(place["modules"])


def test_a_module_that_the_foreign_interpreter_lacks_is_told_as_an_error_of_the_task(bare_python: Path) -> None:
    with LocalPool(Environment(python=str(bare_python), extra_paths=(str(FOLDER),))) as workers:
        result = run_all(workers, [task("echo").__class__(id="a", entry="msgspec:json")])["a"]

    assert result.ending is Ending.RAISED
    assert result.evidence.error == "ModuleNotFoundError: No module named 'msgspec'"


def test_torch_is_loaded_once_and_works_in_every_copy() -> None:
    with pool(preload=("torch", "faulty_tasks"), setup="faulty_tasks:make_a_matrix") as workers:
        found = run_all(workers, [task("multiplies", {"by": number}, id=str(number)) for number in range(6)])
        threads = workers._launcher.threads

    assert threads == 1, "a lock that another thread holds would stay locked in every copy"
    assert [result.answer for result in found.values()] == [
        {"sum": 64.0 * number, "threads": 1} for number in map(int, found)
    ]


def test_variables_for_huge_pages_do_not_reach_the_programs_that_tasks_start() -> None:
    with pool(variables={"MINE": "1"}) as workers:
        seen = run_all(workers, [task("environment_of_a_program")])["environment_of_a_program"].answer or {}

    assert seen["MINE"] == "1"
    assert seen["OMP_NUM_THREADS"] == "1"
    assert {"PYTHONMALLOC", "GLIBC_TUNABLES", "THP_MEM_ALLOC_ENABLE"}.isdisjoint(seen)


def test_variables_that_the_user_gave_stay() -> None:
    with pool(variables={"PYTHONMALLOC": "debug", "OMP_NUM_THREADS": "3"}) as workers:
        seen = run_all(workers, [task("environment_of_a_program")])["environment_of_a_program"].answer or {}

    assert (seen["PYTHONMALLOC"], seen["OMP_NUM_THREADS"]) == ("debug", "3")


def test_the_files_of_the_workers_shadow_nobody() -> None:
    with pool() as workers:
        place = run_all(workers, [task("where")])["where"].answer or {}

    assert [entry for entry in place["path"] if entry.endswith("workers") and entry != str(FOLDER)] == []


@pytest.mark.parametrize("name", ["child", "containment", "zygote"])
def test_the_files_beside_the_task_are_python_of_the_oldest_version(name: str) -> None:
    source = ZYGOTE.with_name(f"{name}.py").read_text(encoding="utf-8")

    assert ast.parse(source, feature_version=OLDEST_PYTHON).body


def test_an_old_python_is_refused_in_words() -> None:
    program = (
        "import runpy, sys; sys.argv = ['zygote', '0']; sys.version_info = (3, 9, 0)\n"
        f"runpy.run_path({str(ZYGOTE)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "workers need 3.10 or newer" in done.stderr


def test_json_of_the_environment_may_be_large() -> None:
    big = environment(setup="faulty_tasks:set_up", setup_payload={"value": "x" * 2_000_000})
    with LocalPool(big) as workers:
        answer = run_all(workers, [task("was_set_up")])["was_set_up"].answer

    assert json.dumps(answer) == json.dumps("x" * 2_000_000)
    assert os.environ.get("SET_UP") is None

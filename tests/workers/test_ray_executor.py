import os
import signal
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.workers.building import FOLDER, MIB, environment, task, wait_until_gone
from torchstone.errors import MissingExtraError, WorkerError
from torchstone.record.task import Ending, Limits
from torchstone.workers.executor import Executor
from torchstone.workers.ray_executor import RayExecutor

LIMITS = Limits(deadline_s=20, memory_bytes=400 * MIB)
on_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra torchstone[ray]")


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A Ray of this machine with two workers' room."""
    found = pytest.importorskip("ray")
    paths = os.pathsep.join([str(FOLDER.parent.parent / "src"), str(FOLDER.parent.parent)])
    found.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    yield found
    found.shutdown()


def test_without_ray_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(MissingExtraError, match=r"running on Ray requires .*: pip install 'torchstone\[ray\]'"):
        RayExecutor(environment())


@on_ray
@pytest.mark.heavy
@pytest.mark.usefixtures("ray")
def test_faults_have_the_same_endings_as_on_one_machine() -> None:
    tasks = [
        task("echo", {"a": 1}),
        task("raises"),
        task("segfaults"),
        task("hangs", limits=Limits(deadline_s=1)),
        task("blows_up"),
        task("exits", {"code": 0}),
    ]
    with RayExecutor(environment(), limits=LIMITS) as executor:
        found = run_all(executor, tasks)

    assert {name: str(ending) for name, (ending, _) in found.items()} == {
        "echo": "answered",
        "raises": "raised",
        "segfaults": "crashed",
        "hangs": "timed out",
        "blows_up": "out of memory",
        "exits": "no answer",
    }
    assert found["echo"][1] == {"a": 1}


@on_ray
@pytest.mark.heavy
@pytest.mark.usefixtures("ray")
def test_a_killed_ray_worker_loses_nothing_and_leaves_nothing_behind() -> None:
    count = 120
    tasks = [task("slow_where", {"seconds": 0.02}, id=str(number)) for number in range(count)]
    seen: dict[str, Ending] = {}
    zygotes: set[int] = set()
    with RayExecutor(environment(), limits=LIMITS) as executor:
        for each in tasks:
            executor.submit(each)
        for result in executor.results():
            assert result.id not in seen
            seen[result.id] = result.ending
            place = result.answer or {}
            zygotes.add(place["parent"])
            if len(seen) == 1:
                os.kill(place["grandparent"], signal.SIGKILL)

    assert set(seen) == {str(number) for number in range(count)}
    assert set(seen.values()) == {Ending.ANSWERED}
    assert len(zygotes) >= 2
    assert wait_until_gone(*zygotes) == []


@on_ray
@pytest.mark.heavy
@pytest.mark.usefixtures("ray")
def test_an_environment_that_cannot_be_set_up_is_one_clear_error() -> None:
    with (
        RayExecutor(environment(preload=("no_such_module",)), limits=LIMITS) as executor,
        pytest.raises(WorkerError, match=r"on a Ray worker: .*failed at importing no_such_module"),
    ):
        run_all(executor, [task("echo")])


def run_all(executor: Executor, tasks: list[Any]) -> dict[str, tuple[Ending, Any]]:
    for each in tasks:
        executor.submit(each)
    until = time.monotonic() + 120
    found = {}
    for result in executor.results():
        found[result.id] = (result.ending, result.answer)
        assert time.monotonic() < until
    return found

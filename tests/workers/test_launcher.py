import os
import select
import time
from collections.abc import Iterator

import pytest

from tests.workers.building import PATIENCE_S, alive, environment, run_all, task, wait_until_gone
from torchstone.errors import WorkerError
from torchstone.record.task import Limits
from torchstone.workers import launcher as launcher_module
from torchstone.workers.lane import Job, Lane
from torchstone.workers.launcher import Launcher, Report, started_early
from torchstone.workers.local_pool import LocalPool


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    started = Launcher(environment())
    yield started
    started.close()


def reports_of(launcher: Launcher) -> Iterator[Report]:
    """Its reports one by one: several may come at once."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        select.select([launcher.control], [], [], 1.0)
        reports, alive = launcher.reports()
        yield from reports
        assert alive
    raise TimeoutError


def test_a_lane_is_started_and_its_end_reported(launcher: Launcher) -> None:
    said = reports_of(launcher)
    next(report for report in said if report.ready is not None)
    lane = Lane(7, room=1, now_s=0.0)
    launcher.start(lane)
    lane.ready = True
    lane.give(Job.of(task("exits", {"code": 9}), Limits()), now_s=0.0)
    started = next(report for report in said if report.started == 7)
    exited = next(report for report in said if report.exited == 7)
    lane.close()

    assert started.pid != os.getpid()
    assert exited.code == 9
    assert exited.peak_kib > 0


def test_a_lane_is_killed_when_told_so(launcher: Launcher) -> None:
    said = reports_of(launcher)
    next(report for report in said if report.ready is not None)
    lane = Lane(1, room=1, now_s=0.0)
    launcher.start(lane)
    launcher.kill(lane)
    exited = next(report for report in said if report.exited == 1)
    lane.close()

    assert exited.code == -9


def test_it_tidies_up_also_when_we_end_without_having_listened() -> None:
    launcher = Launcher(environment())
    select.select([launcher.control], [], [])  # it said that it is ready, and nobody reads it
    launcher.ready = True

    assert launcher.close()


def test_it_leaves_by_itself_when_we_hang_up() -> None:
    launcher = Launcher(environment())
    zygote = next(report.ready for report in reports_of(launcher) if report.ready is not None)
    launcher.ready = True
    assert alive(zygote)

    assert launcher.close()
    assert wait_until_gone(zygote) == []


def test_a_file_that_is_no_interpreter_is_one_clear_error(tmp_path: os.PathLike[str]) -> None:
    with pytest.raises(WorkerError, match=r"cannot start .*: Permission denied; name a Python interpreter"):
        Launcher(environment(python=str(tmp_path)))


def test_a_program_that_is_no_python_has_ended_before_it_was_ready() -> None:
    launcher = Launcher(environment(python="/bin/false"))

    assert launcher.how_it_ended() == "left with exit code 1"
    launcher.close()


def test_an_environment_that_was_started_early_is_taken_by_its_pool_once() -> None:
    early = environment(setup="faulty_tasks:set_up", setup_payload={"value": "early"})
    with started_early(early):
        ((_, waiting),) = launcher_module._waiting
        with LocalPool(early) as workers, LocalPool(early) as others:
            assert launcher_module._waiting == []
            assert workers._launcher is waiting
            assert others._launcher is not waiting
            assert run_all(workers, [task("was_set_up")])["was_set_up"].answer == "early"
    assert waiting._process.poll() is not None


def test_an_environment_that_no_pool_takes_is_ended() -> None:
    with started_early(environment(setup="faulty_tasks:set_up", setup_payload={"hang": True})):
        ((_, waiting),) = launcher_module._waiting
        with LocalPool(environment()) as workers:  # another one
            assert workers._launcher is not waiting
        assert waiting._process.poll() is None
    assert waiting._process.poll() is not None
    assert launcher_module._waiting == []

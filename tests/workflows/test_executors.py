import sys
from importlib.util import find_spec

import pytest

from torchstone.errors import MissingExtraError
from torchstone.record.task import Environment, Limits, Task
from torchstone.workflows.executors import ExecutorKind, ExecutorRequest, opened_executor


def test_a_local_executor_runs_tasks() -> None:
    environment = Environment(python=sys.executable)

    with opened_executor(environment, Limits(), ExecutorRequest(jobs=1)) as executor:
        executor.submit(Task(id="fine", entry="json:dumps", payload={"a": 1}))
        (result,) = executor.results()

    assert (result.id, result.answer) == ("fine", '{"a": 1}')


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_a_cluster_without_ray_says_what_to_install() -> None:
    environment = Environment(python="python")

    with (
        pytest.raises(MissingExtraError, match=r"torchstone\[ray\]"),
        opened_executor(environment, Limits(), ExecutorRequest(kind=ExecutorKind.RAY)),
    ):
        pass

from tests.workers.building import pool, task
from torchstone.record.task import Task
from torchstone.workers.executor import Executor


def answers(executor: Executor, tasks: list[Task]) -> list[object]:
    """What any executor must be able to do, and no more."""
    try:
        for each in tasks:
            executor.submit(each)
        return [result.answer for result in executor.results()]
    finally:
        executor.close()


def test_the_local_pool_is_an_executor() -> None:
    assert answers(pool(), [task("echo", {"a": 1})]) == [{"a": 1}]

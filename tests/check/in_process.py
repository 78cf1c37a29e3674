"""Tasks run in this process: quick, and as good as a process of their own where no fault ends one."""

from collections import deque
from collections.abc import Iterator
from importlib import import_module

from torchstone.record.task import Ending, Evidence, Task, TaskResult


class InProcess:
    """An executor without processes; keeps what it was asked to run."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self._waiting: deque[Task] = deque()

    def submit(self, task: Task) -> None:
        self._waiting.append(task)

    def results(self) -> Iterator[TaskResult]:
        while self._waiting:
            task = self._waiting.popleft()
            self.tasks.append(task)
            module, _, name = task.entry.partition(":")
            try:
                answer = getattr(import_module(module), name)(task.payload)
            except Exception as error:  # noqa: BLE001 - as a pool does
                evidence = Evidence(error=f"{type(error).__name__}: {error}")
                yield TaskResult(id=task.id, ending=Ending.RAISED, evidence=evidence)
            else:
                yield TaskResult(id=task.id, ending=Ending.ANSWERED, answer=answer, elapsed_s=0.5)

    def close(self) -> None:
        pass

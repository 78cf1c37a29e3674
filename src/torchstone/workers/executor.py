"""What runs tasks: here on this machine, or elsewhere."""

from collections.abc import Iterator
from typing import Protocol

from torchstone.record.task import Task, TaskResult


class Executor(Protocol):
    """Runs tasks in processes of their own and tells how each ended."""

    def submit(self, task: Task) -> None:
        """Put a task into the queue; allowed while results are read."""

    def results(self) -> Iterator[TaskResult]:
        """The results as they come, until nothing is pending. Come back soon: limits are watched in between."""

    def close(self) -> None:
        """End every process that was started; nothing is left behind."""

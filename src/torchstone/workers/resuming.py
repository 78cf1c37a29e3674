"""Tasks + a journal -> every result once, however often the run was killed in between."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from torchstone.record.task import Ending, Task, TaskResult
from torchstone.workers.executor import Executor
from torchstone.workers.journal import Journal

TASKS_AHEAD = 1_000  # handed to the executor and not ended: neither tasks nor results pile up


def run_journaled(executor: Executor, tasks: Iterable[Task], path: Path) -> Iterator[TaskResult]:
    """Tell every task's result: the one in the journal, else a new one, which is in the journal before it is told.

    A task is known by its id, so that an id must stand for the whole of what is asked. Cancelled tasks are not written
    down: the next run has them again.
    """
    known = Journal.read(path)
    results = executor.results()
    pending = 0
    with Journal(path) as journal:
        for task in tasks:
            if task.id in known:
                yield msgspec.convert(known.pop(task.id), TaskResult)
                continue
            executor.submit(task)
            pending += 1
            if pending == TASKS_AHEAD:
                yield _written(journal, next(results))
                pending -= 1
        for result in results:
            yield _written(journal, result)


def _written(journal: Journal, result: TaskResult) -> TaskResult:
    if result.ending is not Ending.CANCELLED:
        journal.append(result.id, msgspec.to_builtins(result))
    return result

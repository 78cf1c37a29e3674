"""Pools and tasks as the tests of the workers want them."""

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torchstone.record.task import Environment, Limits, Task, TaskResult
from torchstone.workers.local_pool import LocalPool

FOLDER = Path(__file__).parent
MIB = 1024 * 1024
PATIENCE_S = 60.0  # of a wait for what comes in a moment, but on a busy machine in many


def environment(**changes: Any) -> Environment:
    """The interpreter of the tests, with the faulty tasks loaded."""
    fields: dict[str, Any] = {"python": sys.executable, "preload": ("faulty_tasks",), "extra_paths": (str(FOLDER),)}
    return Environment(**(fields | changes))


def pool(*, jobs: int = 2, tasks_per_child: int = 1, deadline_s: float = 120.0, **changes: Any) -> LocalPool:
    """A pool with a deadline that no sane task reaches."""
    limits = Limits(deadline_s=deadline_s, memory_bytes=200 * MIB)
    return LocalPool(environment(**changes), jobs=jobs, limits=limits, tasks_per_child=tasks_per_child)


def task(name: str, payload: dict[str, Any] | None = None, limits: Limits | None = None, id: str = "") -> Task:  # noqa: A002
    """A call of one of the faulty tasks."""
    return Task(id=id or name, entry=f"faulty_tasks:{name}", payload=payload or {}, limits=limits)


def run_all(workers: LocalPool, tasks: Iterable[Task]) -> dict[str, TaskResult]:
    """Submit all, and the result of each."""
    for each in tasks:
        workers.submit(each)
    return {result.id: result for result in workers.results()}


def alive(pid: int) -> bool:
    """Whether a process is there and not just waiting to be noticed as ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Come back as soon as it holds."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"waited {PATIENCE_S:g} s in vain for {what}"
        time.sleep(0.01)


def wait_until_gone(*pids: int) -> list[int]:
    """The processes that are still there after all patience."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and any(alive(pid) for pid in pids):
        time.sleep(0.01)
    return [pid for pid in pids if alive(pid)]

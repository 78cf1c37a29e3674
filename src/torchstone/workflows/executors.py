"""Where tasks run -> an open executor: processes of this machine, or of a Ray cluster."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchstone.record.task import Environment, Limits
    from torchstone.workers.executor import Executor


class ExecutorKind(StrEnum):
    """Where the processes run."""

    LOCAL = "local"
    RAY = "ray"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorRequest:
    """How many processes work at the same time, and where."""

    kind: ExecutorKind = ExecutorKind.LOCAL
    address: str | None = None  # of the Ray cluster; None: Ray starts one here
    jobs: int = 2
    tasks_per_child: int = 1  # tasks that one process runs in a row


@contextmanager
def opened_executor(environment: "Environment", limits: "Limits", request: ExecutorRequest) -> "Iterator[Executor]":
    """Start the processes of an environment; the context owns them, and all have ended when it closes.

    Raises MissingExtraError where Ray is requested but not installed. An address is written to $RAY_ADDRESS, where Ray
    itself reads it.
    """
    if request.kind is ExecutorKind.RAY:
        from torchstone.workers.ray_executor import RayExecutor

        if request.address:
            os.environ["RAY_ADDRESS"] = request.address
        with RayExecutor(environment, request.jobs, limits, tasks_per_child=request.tasks_per_child) as cluster:
            yield cluster
        return
    from torchstone.workers.local_pool import LocalPool

    with LocalPool(environment, jobs=request.jobs, limits=limits, tasks_per_child=request.tasks_per_child) as pool:
        pool.wait_until_ready()
        yield pool

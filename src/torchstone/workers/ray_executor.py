"""Tasks -> results on a Ray cluster: every Ray worker has a local pool, which does the isolation.

A task that falls costs a fork, not a Ray worker. A Ray worker that is lost, or the machine it runs on, costs time only:
what it was given is given to another. Tasks and results travel as JSON; Ray is imported with the first executor.
"""

from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import msgspec

from torchstone.errors import MissingExtraError, WorkerError
from torchstone.record.base import Record
from torchstone.record.task import Ending, Environment, Evidence, Limits, Task, TaskResult
from torchstone.workers.lane import Job
from torchstone.workers.local_pool import USUAL_LIMITS, LocalPool

CALLS_AHEAD = 2  # per Ray worker: one runs, the next is there when it is done
TASKS_PER_CALL = 16  # for each job of a worker: a call costs about a millisecond
MOST_DEATHS = 3  # of Ray workers, that a bundle of tasks survives
_WAIT_S = 1.0


class Station(Record, frozen=True, kw_only=True):
    """What each Ray worker needs for its pool."""

    environment: Environment
    jobs: int
    limits: Limits
    tasks_per_child: int


class Bundle(Record, frozen=True, kw_only=True):
    """Tasks that go to a Ray worker together."""

    tasks: tuple[Task, ...]
    worker: int
    deaths: int = 0  # of Ray workers that had it


class RayWorker:
    """Lives in a process of Ray and runs bundles of tasks in its own pool."""

    def __init__(self, station: bytes) -> None:
        self._station = msgspec.json.decode(station, type=Station)
        self._pool: LocalPool | None = None

    def run(self, tasks: bytes) -> bytes:
        """Run a bundle to its end."""
        if self._pool is None:
            station = self._station
            self._pool = LocalPool(
                station.environment, station.jobs, station.limits, tasks_per_child=station.tasks_per_child
            )
        for task in msgspec.json.decode(tasks, type=list[Task]):
            self._pool.submit(task)
        return msgspec.json.encode(list(self._pool.results()))


class RayExecutor:
    """Runs tasks on `workers` Ray workers, `jobs` at once on each; use it as a context manager.

    It takes the Ray that the program is connected to; if there is none, it connects to the cluster that the variable
    RAY_ADDRESS names, or starts one on this machine and ends it on close. The interpreter of the environment must be at
    the same path on every machine.
    """

    def __init__(
        self,
        environment: Environment,
        workers: int = 2,
        limits: Limits = USUAL_LIMITS,
        *,
        jobs: int = 1,
        tasks_per_child: int = 1,
    ) -> None:
        self._ray = _import_ray()
        self._limits = limits
        self._jobs = jobs
        station = Station(environment=environment, jobs=jobs, limits=limits, tasks_per_child=tasks_per_child)
        self._station = msgspec.json.encode(station)
        self._queue: deque[Task] = deque()
        self._flying: dict[Any, Bundle] = {}  # reference -> what was sent
        self._started_ray = not self._ray.is_initialized()
        if self._started_ray:
            self._ray.init(include_dashboard=False, log_to_driver=False)
        self._workers = {number: self._hire() for number in range(workers)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def submit(self, task: Task) -> None:
        """Put a task into the queue; allowed while results are read."""
        Job.of(task, self._limits)  # a payload that is not JSON fails here
        self._queue.append(task)

    def results(self) -> Iterator[TaskResult]:
        """The results as they come, until nothing is pending."""
        while self._queue or self._flying:
            self._hand_out()
            ready, _ = self._ray.wait(list(self._flying), num_returns=1, timeout=_WAIT_S)
            for reference in ready:
                yield from self._collect(reference)

    def close(self) -> None:
        """End every process that was started; nothing is left behind."""
        for worker in self._workers.values():
            self._ray.kill(worker)  # its pool sees that, and ends all it started
        self._workers.clear()
        if self._started_ray:
            self._ray.shutdown()

    def _hire(self) -> Any:
        return self._ray.remote(RayWorker).options(num_cpus=self._jobs, max_restarts=0).remote(self._station)

    def _hand_out(self) -> None:
        """Give every worker its next calls, in pieces small enough that all of them have something to do."""
        for number in self._workers:
            flying = sum(bundle.worker == number for bundle in self._flying.values())
            for _ in range(CALLS_AHEAD - flying):
                share = -(-len(self._queue) // (len(self._workers) * CALLS_AHEAD))
                size = min(TASKS_PER_CALL * self._jobs, share)
                if size:
                    tasks = tuple(self._queue.popleft() for _ in range(size))
                    self._send(Bundle(tasks=tasks, worker=number))

    def _send(self, bundle: Bundle) -> None:
        reference = self._workers[bundle.worker].run.remote(msgspec.json.encode(bundle.tasks))
        self._flying[reference] = bundle

    def _collect(self, reference: object) -> list[TaskResult]:
        bundle = self._flying.pop(reference)
        try:
            return msgspec.json.decode(self._ray.get(reference), type=list[TaskResult])
        except self._ray.exceptions.RayActorError as error:
            return self._send_again(bundle, str(error))
        except self._ray.exceptions.RayTaskError as error:
            msg = f"on a Ray worker: {error.cause}"
            raise WorkerError(msg) from error

    def _send_again(self, bundle: Bundle, why: str) -> list[TaskResult]:
        """The worker is gone: another one takes its place and its tasks."""
        others = [reference for reference, other in self._flying.items() if other.worker == bundle.worker]
        again = [bundle, *(self._flying.pop(reference) for reference in others)]
        self._workers[bundle.worker] = self._hire()
        lost: list[TaskResult] = []
        for one in again:
            if one.deaths + 1 < MOST_DEATHS:
                self._send(msgspec.structs.replace(one, deaths=one.deaths + 1))
            else:
                lost += [_lost(task, why) for task in one.tasks]
        return lost


def _lost(task: Task, why: str) -> TaskResult:
    first, _, _ = why.partition("\n")
    error = f"{MOST_DEATHS} Ray workers were lost while they had it: {first}"
    return TaskResult(id=task.id, ending=Ending.CRASHED, evidence=Evidence(error=error))


def _import_ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise MissingExtraError(needed_for="running on Ray", extra="ray") from error
    return ray

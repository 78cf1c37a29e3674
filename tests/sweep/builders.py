"""Small vectors for the tests of sweeps."""

from collections.abc import Iterator
from typing import Any

from torchstone.record.check import Outcome
from torchstone.record.config import Configuration, Occurrence, SeenConfiguration, TensorFacts
from torchstone.record.task import Ending, Evidence, Task, TaskResult
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument, Value
from torchstone.record.vector import SweepRun, Timing, Vector, VectorResult, status_of
from torchstone.sweep.vectors import vector_of


def tensor(*shape: int, dtype: str = "float32", stride: tuple[int, ...] | None = None, offset: int = 0) -> TensorSpec:
    steps = []
    step = 1
    for size in reversed(shape):
        steps.append(step)
        step *= max(size, 1)
    return TensorSpec(shape=shape, dtype=dtype, stride=stride or tuple(reversed(steps)), storage_offset=offset)


def call(op: str, aliases: tuple[tuple[int, ...], ...] = (), /, **arguments: Value) -> Configuration:
    named = tuple(Argument(name=name.rstrip("_"), value=value) for name, value in arguments.items())
    return Configuration(op=op, arguments=named, aliases=aliases)


def mm(rows: int = 2, inner: int = 3, columns: int = 4) -> Configuration:
    return call("aten.mm.default", self_=tensor(rows, inner), mat2=tensor(inner, columns))


def seen(
    configuration: Configuration, *, calls: int = 1, model: str = "net", facts: tuple[TensorFacts, ...] = ()
) -> SeenConfiguration:
    place = Occurrence(source=model, run="1", model=model, count=calls)
    return SeenConfiguration(configuration=configuration, occurrences=(place,), facts=facts)


def vector(configuration: Configuration | None = None, **changes: Any) -> Vector:
    from msgspec.structs import replace

    return replace(vector_of(seen(configuration or mm())), **changes)


def result(identity: str, outcome: Outcome = Outcome.PASSED, **more: Any) -> VectorResult:
    told: dict[str, Any] = {"module": "aten.mm.default", "suite": "model_traced", "op": "aten.mm.default", **more}
    return VectorResult(id=identity, outcome=outcome, status=status_of(outcome, expected_to_fail=False), **told)


def timing(median_s: float, mad_s: float = 0.0) -> Timing:
    return Timing(median_s=median_s, mad_s=mad_s, runs=5)


def run(name: str, *results: VectorResult, backend: str = "eager", **more: Any) -> SweepRun:
    told: dict[str, Any] = {"finished": True, "started": f"2026-01-01T00:00:{name[-1:]}", **more}
    return SweepRun(run=name, backend=backend, results=results, **told)


class ScriptedExecutor:
    """Answers tasks from a script: what each task of a name gives, one after the other; anything else passes."""

    def __init__(self, script: dict[str, list[TaskResult]] | None = None) -> None:
        self.submitted: list[Task] = []
        self._script = {name: list(answers) for name, answers in (script or {}).items()}
        self._queue: list[Task] = []

    def submit(self, task: Task) -> None:
        self.submitted.append(task)
        self._queue.append(task)

    def results(self) -> Iterator[TaskResult]:
        while self._queue:
            task = self._queue.pop(0)
            waiting = self._script.get(task.id)
            yield waiting.pop(0) if waiting else answered(task.id, {"outcome": "passed", "detail": ""})

    def close(self) -> None:
        self._queue.clear()


def answered(name: str, answer: Any) -> TaskResult:
    return TaskResult(id=name, ending=Ending.ANSWERED, answer=answer, elapsed_s=0.1)


def died(name: str, ending: Ending = Ending.CRASHED, signal: str | None = "SIGSEGV") -> TaskResult:
    return TaskResult(id=name, ending=ending, evidence=Evidence(signal=signal, error=f"it was ended by {signal}"))

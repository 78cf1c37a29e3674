from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.capture.nets import Feed, Stack
from tests.check.held import kept_model
from tests.check.in_process import InProcess
from torchstone.capture.capture_model import capture
from torchstone.check.child.model import LoadedModel, set_model
from torchstone.check.plan import plan
from torchstone.check.record_values import captured_trace, record_values, wanted_values
from torchstone.check.settings import Folder
from torchstone.errors import ModelError, TorchstoneError
from torchstone.record.task import Ending, Evidence, Task, TaskResult
from torchstone.workflows.check import STAGES

ENTRY = STAGES.capture_entry


class Ends:
    """An executor whose only task ends in one way."""

    def __init__(self, ending: Ending, answer: Any = None, **evidence: Any) -> None:
        self._result = TaskResult(id="x", ending=ending, answer=answer, evidence=Evidence(**evidence))

    def submit(self, task: Task) -> None:
        self._limits = task.limits

    def results(self) -> Iterator[TaskResult]:
        yield self._result

    def close(self) -> None:
        pass


def test_the_trace_of_an_interrupted_run_is_taken_as_it_is(tmp_path: Path) -> None:
    kept = kept_model(Feed(), torch.ones(2, 8), tmp_path)

    assert captured_trace(Ends(Ending.CRASHED), kept.folder, ENTRY, "") == kept.trace


def test_a_model_that_fails_on_the_cpu_is_refused(tmp_path: Path) -> None:
    pool = Ends(Ending.ANSWERED, {"failure": {"module": "layers.0", "error": "RuntimeError: no"}})

    with pytest.raises(ModelError, match=r"fails on the CPU in layers\.0: RuntimeError: no; a check needs"):
        captured_trace(pool, Folder(path=tmp_path), ENTRY, "")


@pytest.mark.parametrize(
    ("pool", "error", "words"),
    [
        (
            Ends(Ending.RAISED, error="x.TraceMismatchError: op call 3 is a"),
            ModelError,
            "does not call the same ops twice: op call 3",
        ),
        (Ends(Ending.RAISED, error="KeyError: 1", traceback="trace"), TorchstoneError, "KeyError: 1\ntrace"),
        (Ends(Ending.OUT_OF_MEMORY), ModelError, "out of memory; try a smaller model"),
    ],
)
def test_a_run_that_ends_badly_is_one_sentence(tmp_path: Path, pool: Ends, error: type[Exception], words: str) -> None:
    trace = capture(Feed(), torch.ones(2, 8), "cpu", reuse=False)

    with pytest.raises(error, match=words):
        record_values(pool, Folder(path=tmp_path), trace, plan(trace), weights=False)


def test_values_are_kept_once(tmp_path: Path) -> None:
    model = Stack(Feed())
    trace = capture(model, torch.ones(2, 8), "cpu", reuse=False)
    set_model(LoadedModel(model, (torch.ones(2, 8),), {}, {}))
    pool, folder = InProcess(), Folder(path=tmp_path)

    for _ in range(2):
        assert record_values(pool, folder, trace, plan(trace), weights=False) == {}

    assert len(pool.tasks) == 1


def test_weights_are_wanted_by_their_paths() -> None:
    trace = capture(Feed(), torch.ones(2, 8), "cpu", reuse=False)

    wanted = wanted_values(trace, {unit.row for unit in plan(trace).units.values()}, weights=True)

    assert sorted(wanted["weights"].values()) == ["down.bias", "down.weight", "up.bias", "up.weight"]
    assert wanted["ops"] == [call.op for call in trace.ops]
    assert wanted_values(trace, {unit.row for unit in plan(trace).units.values()}, weights=False)["weights"] == {}

"""Models and inputs that a check cannot take: each refused in one sentence."""

from pathlib import Path

import pytest
import torch

from torchstone.check.model_setup import refuse_sparse
from torchstone.check.record_values import captured_trace
from torchstone.check.settings import Folder
from torchstone.errors import ModelError, ModelInputsError
from torchstone.record.task import Ending, Evidence, TaskResult


def test_sparse_inputs_are_refused_by_name() -> None:
    with pytest.raises(ModelInputsError, match=r"input 1.matrix is a sparse tensor \(sparse_coo\).*dense tensor"):
        refuse_sparse((torch.ones(2),), {"matrix": torch.eye(2).to_sparse()})


def test_dense_inputs_are_taken() -> None:
    refuse_sparse((torch.ones(2), None, [torch.ones(2, dtype=torch.complex64)]), {})


class RaisesOwnError:
    """An executor whose capture refuses the model."""

    def submit(self, task: object) -> None:
        pass

    def results(self) -> list[TaskResult]:
        traceback = (
            "Traceback ...\ntorchstone.errors.CaptureError: the model is a TorchScript module; give the nn.Module"
        )
        return [TaskResult(id="capture", ending=Ending.RAISED, evidence=Evidence(error="x", traceback=traceback))]

    def close(self) -> None:
        pass


def test_what_the_capture_refuses_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as raised:
        captured_trace(RaisesOwnError(), Folder(path=tmp_path), "entry", "")  # type: ignore[arg-type]

    assert str(raised.value) == "the model is a TorchScript module; give the nn.Module"

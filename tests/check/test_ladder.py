"""The other forms of a failure, and the smallest change with which it passes; each script is really run."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.check import planted_backends
from tests.check.held import kept_model
from tests.check.in_process import InProcess
from torchstone.check.ladder import EXPORTED, ONNX, TORCH, Ladder
from torchstone.check.localize import Search
from torchstone.check.repro import ModelSource, Repro, Repros
from torchstone.check.runner import Runner
from torchstone.check.settings import Settings
from torchstone.record.check import Rung, Twin


class AddsAfterLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.inner(x) + x)


def extended(model: nn.Module, inputs: Tensor, path: Path, backend: str) -> Repro:
    """The one cause of a model on a backend, with its ladder and twin."""
    torch.manual_seed(0)
    settings = Settings(backend=backend, exports_ir=False)
    kept = kept_model(model.eval(), inputs, path)
    with Runner(InProcess(), kept.folder.journal) as runner:
        search = Search(kept.trace, kept.plan, kept.requests(settings), runner, settings)
        search.run()
        repros = Repros(kept.trace, search, runner, folder=kept.folder, settings=settings, source=ModelSource())
        (cause,) = search.causes
        return Ladder(repros).extended(cause, repros.write(cause, 1))


def planted(name: str) -> str:
    return f"{planted_backends.__file__}::{name}"


def ends_with(script: Path) -> int:
    return subprocess.run([sys.executable, str(script)], capture_output=True, check=False, timeout=600).returncode


def rung_of(found: Repro, form: str) -> Rung:
    return next(rung for rung in found.ladder if rung.form == form)


def twin_of(found: Repro) -> Twin:
    assert found.twin is not None
    return found.twin


@pytest.mark.heavy
def test_ops_that_fail_together_pass_with_one_of_them_computed_by_eager(tmp_path: Path) -> None:
    found = extended(AddsAfterLinear(), torch.randn(2, 8), tmp_path, planted("BadAddAfterLinear"))

    assert (rung_of(found, TORCH).file, rung_of(found, TORCH).outcome) == (found.file, "wrong")
    assert twin_of(found).change == "with aten.add.Tensor computed by eager"
    assert "in float64 in place of float32" in twin_of(found).fails_with
    assert [ends_with(tmp_path / file) for file in (found.file, twin_of(found).file)] == [1, 0]


def test_what_fails_for_one_size_passes_with_another(tmp_path: Path) -> None:
    found = extended(nn.Sequential(nn.Linear(6, 7)), torch.randn(2, 6), tmp_path, planted("BadAtOddWidth"))

    assert twin_of(found).change.startswith("with ")
    assert "in its shapes" in twin_of(found).change
    assert ends_with(tmp_path / twin_of(found).file) == 0


def test_what_fails_in_every_way_has_no_twin(tmp_path: Path) -> None:
    found = extended(nn.Sequential(nn.Linear(6, 7)), torch.randn(2, 6), tmp_path, planted("BadLinear"))

    assert (twin_of(found).change, twin_of(found).file) == (
        "decomposed into simpler ops",
        f"{found.file[:-3]}/passes.py",
    )
    assert len(twin_of(found).fails_with) > 4


@pytest.mark.heavy
def test_a_failure_of_onnxruntime_is_written_as_an_exported_program_and_as_onnx_text(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = nn.Sequential(nn.Conv2d(2, 3, 3)).double()

    found = extended(model, torch.randn(1, 2, 5, 5, dtype=torch.float64), tmp_path, "onnxruntime")

    assert [rung.form for rung in found.ladder] == [TORCH, EXPORTED, ONNX]
    assert {rung.outcome for rung in found.ladder} == {"unsupported"}
    assert rung_of(found, ONNX).reason == "the reference evaluator of onnx agrees with PyTorch"
    text = (tmp_path / rung_of(found, ONNX).file).read_text()
    assert "import torch" not in text
    assert ends_with(tmp_path / rung_of(found, ONNX).file) == 1
    assert "torch.ops.aten.conv2d.default" in (tmp_path / rung_of(found, EXPORTED).file).read_text()
    assert twin_of(found).change == "in float32 in place of float64"

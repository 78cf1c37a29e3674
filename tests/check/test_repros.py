import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.capture.nets import Feed, Stack
from tests.check import picky_backends
from tests.check.held import faulty, kept_model
from tests.check.in_process import InProcess
from torchstone.check.localize import Search
from torchstone.check.repro import ModelSource, Repro, Repros, write_rerun
from torchstone.check.runner import Runner
from torchstone.check.settings import Folder, Settings


def written(
    model: nn.Module, path: Path, settings: Settings, source: ModelSource | None = None, inputs: Tensor | None = None
) -> list[Repro]:
    kept = kept_model(model, torch.randn(2, 8) if inputs is None else inputs, path)
    requests = kept.requests(settings)
    with Runner(InProcess(), kept.folder.journal) as runner:
        search = Search(kept.trace, kept.plan, requests, runner, settings)
        search.run()
        repros = Repros(
            kept.trace, search, runner, folder=kept.folder, settings=settings, source=source or ModelSource()
        )
        return [repros.write(cause, number) for number, cause in enumerate(search.causes, start=1)]


def run(script: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=600)


def test_a_script_shows_the_failure_with_small_shapes(tmp_path: Path) -> None:
    (repro,) = written(nn.LeakyReLU(), tmp_path, faulty({"fault": "wrong", "op": "aten.leaky_relu.default"}))

    done = run(tmp_path / repro.file)

    assert (repro.file, repro.shapes, repro.confirmed) == (
        "repros/001_aten_leaky_relu_default.py",
        "float32[1, 1]",
        True,
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "outcome: wrong"), done.stderr


def test_a_script_says_what_it_needs(tmp_path: Path) -> None:
    (repro,) = written(nn.ReLU(), tmp_path, faulty({"fault": "nan"}))

    assert repro.needs == "torch and torchstone with the backend faulty"
    assert repro.needs in (tmp_path / repro.file).read_text()


def test_values_that_matter_are_kept(tmp_path: Path) -> None:
    """The fault needs the recorded width, so shapes stay, and nothing but the shape matters."""
    fault = {"fault": "wrong", "op": "aten.leaky_relu.default", "shape": [2, 16]}

    (repro,) = written(Stack(Feed()), tmp_path, faulty(fault))

    assert repro.shapes == "float32[2, 16]"
    assert repro.confirmed


@pytest.mark.parametrize(
    ("model", "backend", "words"),
    [
        (nn.LayerNorm(8), "WantsNoGradients", ".requires_grad_()"),
        (nn.LeakyReLU(), "WantsRowsOfSmallValues", ".as_strided("),
    ],
)
def test_a_script_makes_its_tensors_as_they_were(tmp_path: Path, model: nn.Module, backend: str, words: str) -> None:
    """A failure may depend on wanted gradients or on strides as well as on values."""
    settings = Settings(backend=f"{picky_backends.__file__}::{backend}", exports_ir=False)

    (repro,) = written(model, tmp_path, settings, inputs=(20 * torch.arange(16.0)).reshape(8, 2).t())

    assert repro.confirmed
    assert words in (tmp_path / repro.file).read_text()
    assert run(tmp_path / repro.file).returncode == 1


def test_a_module_without_an_op_to_blame_needs_its_model(tmp_path: Path) -> None:
    settings = faulty({"fault": "wrong", "op": "*leaky_relu*", "module": "Feed"})

    (repro,) = written(Stack(Feed()), tmp_path, settings)

    assert repro == Repro()


def test_the_pytest_file_runs_every_script(tmp_path: Path) -> None:
    (tmp_path / "repros").mkdir()
    (tmp_path / "repros" / "001_right.py").write_text("raise SystemExit(0)")
    (tmp_path / "repros" / "002_wrong.py").write_text("print('outcome: wrong')\nraise SystemExit(1)")

    write_rerun(Folder(path=tmp_path), deadline_s=60)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "tests")],
        capture_output=True, text=True, check=False, timeout=600, cwd=tmp_path,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout
    assert "002_wrong" in done.stdout

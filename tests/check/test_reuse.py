"""A result is reused only where nothing that it depends on has changed."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from torchstone.check.check_model import Observer, Subject, run_check
from torchstone.check.dependencies import Dependencies
from torchstone.check.runner import Answer
from torchstone.check.settings import Folder, Settings
from torchstone.record.check import CheckResult
from torchstone.workflows.check import STAGES

BACKEND = """
from torchstone.backends.eager import Eager
{extra}

class Chip(Eager):
    name = "chip"

    def compile(self, module, args, kwargs):
        from chip_kernels import offset
        run = super().compile(module, args, kwargs)
        return lambda *given, **named: run(*given, **named) + offset()
"""
MODEL = """
import torch
from pathlib import Path
from torch import nn
from blocks import Block

def load_model():
    torch.manual_seed(3)
    model = nn.Sequential(Block(), nn.ReLU())
    weights = Path(__file__).with_name("weights.pt")
    if weights.is_file():
        model.load_state_dict(torch.load(weights, weights_only=True))
    return model
"""
BLOCKS = """
from torch import nn

class Block(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)

    def forward(self, x):
        return super().forward(x) * {scale}
"""
INPUTS = """
import torch

def get_inputs():
    return torch.full((2, 4), {value})
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A backend, a model and its inputs, each with a file that it imports."""
    (tmp_path / "chip.py").write_text(BACKEND.format(extra=""))
    (tmp_path / "chip_kernels.py").write_text("def offset():\n    return 0.0\n")
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "blocks.py").write_text(BLOCKS.format(scale=1.0))
    (tmp_path / "inputs.py").write_text(INPUTS.format(value=1.0))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # two versions within a second would share one .pyc
    return tmp_path


def checked(files: Path, folder: str, *, resume: bool = False) -> tuple[CheckResult, list[str], list[str]]:
    """The result, the names of what ran, and the notes to the user."""
    ran: list[str] = []
    notes: list[str] = []

    def on_answer(answer: Answer) -> None:
        if answer.fresh:
            ran.append(answer.name)

    subject = Subject(model=f"{files}/model.py::load_model", inputs=f"{files}/inputs.py::get_inputs")
    settings = Settings(backend=f"{files}/chip.py::Chip", exports_ir=False, jobs=1, reuse=str(files / "shared.jsonl"))
    observer = Observer(on_answer=on_answer, note=notes.append)
    opened = Folder(path=files / folder)
    return run_check(subject, settings, opened, stages=STAGES, resume=resume, observer=observer), ran, notes


def change_backend(files: Path) -> None:
    (files / "chip.py").write_text(BACKEND.format(extra="CHANGED = True"))


def change_kernels(files: Path) -> None:
    (files / "chip_kernels.py").write_text("def offset():\n    return 5.0\n")


def change_helper(files: Path) -> None:
    (files / "blocks.py").write_text(BLOCKS.format(scale=2.0))


def change_inputs(files: Path) -> None:
    (files / "inputs.py").write_text(INPUTS.format(value=3.0))


def change_weights(files: Path) -> None:
    import torch
    from torch import nn

    torch.save(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).state_dict(), files / "weights.pt")


CHANGES = [
    change_backend,
    pytest.param(change_kernels, marks=pytest.mark.heavy),
    pytest.param(change_helper, marks=pytest.mark.heavy),
    change_inputs,
    change_weights,
]


def test_an_unchanged_check_reuses_every_result_and_says_from_when(files: Path) -> None:
    first, ran, _ = checked(files, "one")
    again, ran_again, _ = checked(files, "two")

    assert ran == ["unit:mod_000_root"]
    assert (first.reused_tasks, first.reused_from) == (0, ())
    assert ran_again == []
    assert again.reused_tasks == again.tasks == 1
    result = again.modules[0].checked_calls[0].result
    assert result is not None
    assert result.reused
    assert again.reused_from == (result.ran_at,)
    document = json.loads((files / "two" / "check.json").read_text())
    assert document["modules"][0]["checked_calls"][0]["result"]["reused"] is True


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_makes_everything_run_again(files: Path, change: Callable[[Path], None]) -> None:
    first, *_ = checked(files, "one")
    change(files)

    again, ran, notes = checked(files, "one", resume=True)  # may find it neither in the folder nor in the cache

    assert "unit:mod_000_root" in ran
    assert again.reused_tasks == 0
    assert first.passed
    assert again.passed == (change is not change_kernels)
    assert len(notes) == 1
    assert notes[0].endswith("everything runs again")


@pytest.mark.heavy
def test_an_environment_variable_is_part_of_the_key(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked(files, "one")
    monkeypatch.setenv("CHIP_MODE", "fast")
    _, ran, _ = checked(files, "two")
    monkeypatch.setenv("TERM", "another")
    _, ran_in_another_terminal, _ = checked(files, "three")

    assert ran == ["unit:mod_000_root"]
    assert ran_in_another_terminal == []


def test_a_resumed_check_runs_only_what_is_missing(files: Path) -> None:
    checked(files, "one", resume=True)

    again, ran, notes = checked(files, "one", resume=True)

    assert (ran, notes) == ([], [])
    assert again.reused_tasks == 1


@pytest.mark.heavy
def test_a_configuration_file_that_changes_the_model_is_noticed(files: Path) -> None:
    (files / "blocks.py").write_text(
        BLOCKS.format(scale="float(open(__file__.replace('blocks.py', 'scale.txt')).read())")
    )
    (files / "scale.txt").write_text("1.0")
    checked(files, "one", resume=True)
    (files / "scale.txt").write_text("1.5")

    _, ran, notes = checked(files, "one", resume=True)

    assert ran == ["unit:mod_000_root"]
    assert notes[0].startswith("what the model computes changed")


def test_changes_are_named_by_what_the_user_knows() -> None:
    usual = {"backend": "1", "backend_version": "2", "torchstone": "3", "torch": "4", "inputs": "5"}
    before = Dependencies(**usual, environment={"A": "x"}, files={"/a/net.py": "x"}, weights={"w": "x"})
    now = Dependencies(**usual, environment={"A": "x"}, files={"/a/net.py": "y"}, weights={"w": "x"})

    assert now.changes_since(before) == "the file net.py"
    assert before.changes_since(before) == ""
    assert now.key() != before.key()

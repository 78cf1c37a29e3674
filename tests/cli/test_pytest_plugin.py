"""The pytest plugin, in runs of pytest of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.sweeps import database
from tests.sweep.builders import call, mm, tensor
from torchstone.cli.main import run
from torchstone.errors import EXIT_FINE
from torchstone.store.database import Store

BAD = """
from torchstone.backends.eager import Eager

class Bad(Eager):
    def compile(self, module, args, kwargs):
        return lambda *inputs: module(*inputs) * 2
"""
TESTS = """
import torch

def test_passes():
    assert torch.relu(torch.ones(3)).sum() == 3

def test_fails():
    torch.sin(torch.ones(2))
    assert False
"""


def pytest_run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the vectors of two ops."""
    monkeypatch.chdir(tmp_path)
    database(Path("torchstone.db"), mm(), mm(5, 6, 7), call("aten.relu.default", self_=tensor(4)))
    assert run(["sweep", "generate", "--all", "-q"]) == EXIT_FINE
    return tmp_path


@pytest.mark.heavy
def test_each_vector_is_a_test_that_can_be_chosen_by_its_op(folder: Path) -> None:
    every = pytest_run(folder, "--torchstone-backend", "eager", "-v")
    chosen = pytest_run(folder, "--torchstone-backend", "eager", "-k", "relu", "--collect-only", "-q")

    assert every.returncode == 0, every.stdout + every.stderr
    assert "3 passed" in every.stdout
    items = [line for line in chosen.stdout.splitlines() if "[model_traced" in line]
    assert len(items) == 1
    assert items[0].startswith("torchstone::eager::aten.relu.default[model_traced-k1-")


def test_a_failure_says_what_the_backend_did_and_a_known_one_is_expected(folder: Path) -> None:
    (folder / "bad.py").write_text(BAD, encoding="utf-8")
    failed = pytest_run(folder, "--torchstone-backend", "bad.py::Bad", "-q")
    assert run(["sweep", "quarantine", "aten.mm.default", "--reason", "being repaired"]) == EXIT_FINE
    known = pytest_run(folder, "--torchstone-backend", "bad.py::Bad", "-q")

    assert failed.returncode == 1
    assert "3 failed" in failed.stdout
    assert "aten.mm.default: wrong: " in failed.stdout
    assert "mat2=float32[" in failed.stdout
    assert "1 failed, 2 xfailed" in known.stdout


def test_a_folder_without_vectors_is_wrong_usage(tmp_path: Path) -> None:
    done = pytest_run(tmp_path, "--torchstone-backend", "eager")

    assert done.returncode == 4
    assert "sweep holds no vectors; make some with" in done.stderr


def test_a_test_run_is_recorded_and_only_passing_tests_count(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS, encoding="utf-8")

    done = pytest_run(tmp_path, "test_it.py", "--torchstone-trace", "ops.db")

    assert "torchstone: " in done.stdout, done.stdout + done.stderr
    with Store.open(str(tmp_path / "ops.db"), create=False) as store:
        assert "aten.relu.default" in store.op_names()
        assert "aten.sin.default" not in store.op_names()
        assert store.sources() == ("test_it.py::test_passes",)

"""The first environment in which a vector fails; links to this interpreter stand for environments."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.cli.sweeps import unary, vectors_in
from tests.sweep.builders import call, mm, result, run, tensor
from torchstone.errors import InputError
from torchstone.record.check import Outcome
from torchstone.workflows import sweep_bisect
from torchstone.workflows.sweep_bisect import BisectRequest, bisect_sweep
from torchstone.workflows.sweep_run import RunRequest


def test_a_vector_that_is_not_one_vector_is_refused(tmp_path: Path) -> None:
    vectors_in(tmp_path, mm(), unary("aten.neg.default"))
    pythons = (sys.executable, sys.executable)

    with pytest.raises(InputError, match="no vector begin"):
        bisect_sweep(BisectRequest(vector_id="zz", backend="eager", pythons=pythons, folder=tmp_path))
    with pytest.raises(InputError, match="two or more --python"):
        bisect_sweep(BisectRequest(vector_id=mm().key, backend="eager", pythons=pythons[:1], folder=tmp_path))


def test_the_pair_that_is_named_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors_in(tmp_path, mm())
    ends = dict(zip("abcdef", (*[Outcome.PASSED] * 2, Outcome.NOT_RUN, *[Outcome.WRONG] * 3), strict=True))
    tried = []

    def run_sweep(request: RunRequest) -> object:
        tried.append(request.python)
        return run("r", result(mm().key, ends[request.python]))

    monkeypatch.setattr(sweep_bisect, "run_sweep", run_sweep)
    found = bisect_sweep(BisectRequest(vector_id=mm().key, backend="eager", pythons="abcdef", folder=tmp_path))

    assert (found.last_good, found.first_bad) == ("b", "d")
    assert "those between them could not be tried" in found.verdict
    assert {"b", "d"} <= set(tried)
    assert len(tried) == len(set(tried))


def environment_with(folder: Path, package: str) -> str:
    """An interpreter with another version of one package, and all else of this one's; skips where pip has none."""
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), package]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip(f"pip cannot install {package} here")
    (site / "zz_shared.pth").write_text(sysconfig.get_paths()["purelib"], encoding="utf-8")
    return str(folder / "bin" / "python")


@pytest.mark.heavy
def test_the_version_of_onnxruntime_in_which_a_vector_fails_is_found(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    small = tensor(3, 4, dtype="int8")
    added = call("aten.add.Tensor", self_=small, other=small, alpha=1)
    vectors_in(tmp_path / "sweep", added)
    old = environment_with(tmp_path / "old", "onnxruntime==1.20.1")  # it has no Add of int8

    found = bisect_sweep(
        BisectRequest(
            vector_id=added.key,
            backend="onnxruntime",
            pythons=(sys.executable, old),
            folder=tmp_path / "sweep",
            timeout_s=300,
        )
    )

    assert (found.last_good, found.first_bad) == (sys.executable, old)
    assert "onnxruntime 1.20.1" in found.tried[1].version
    assert "onnxruntime 1.20.1" not in found.tried[0].version

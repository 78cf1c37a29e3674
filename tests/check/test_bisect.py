"""The first environment in which a bundle fails; small programs stand for the interpreters of the environments."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.check.results import check_result, finding
from torchstone.backends.torch_compile import Inductor
from torchstone.check.bisect import _compiler_verdict, bisect, bisect_compiler
from torchstone.check.bundle import write_bundle
from torchstone.errors import InputError
from torchstone.record.codec import save

SCRIPT = """
import os
import sys

sys.exit(int(os.environ.get("HOW_IT_ENDS", "1")))
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    save(tmp_path / "check.json", check_result(finding(repro="repros/001_x.py"), backend="aot_eager"))
    (tmp_path / "repros").mkdir()
    (tmp_path / "repros/001_x.py").write_text(SCRIPT)
    return write_bundle(tmp_path, "1", tmp_path / "b.zip", python=sys.executable, deadline_s=60.0)


def environments(folder: Path, codes: str) -> list[str]:
    """An interpreter for each digit: the exit code that the script has there."""
    found = []
    for number, code in enumerate(codes):
        path = folder / f"python{number}"
        path.write_text(f'#!/bin/sh\nHOW_IT_ENDS={code} exec {sys.executable} "$@"\n')
        path.chmod(0o755)
        found.append(str(path))
    return found


@pytest.mark.parametrize(
    ("codes", "good", "bad", "runs"),
    [
        ("0001", 2, 3, 4),
        ("0111111", 0, 1, 5),
        ("00", 1, None, 2),
        ("11", None, 0, 2),
        ("0221", 0, 3, 4),
        ("2012", 1, 2, 4),
        ("22", None, None, 2),
    ],
)
def test_the_pair_where_it_broke_is_found(
    bundle: Path, tmp_path: Path, codes: str, good: int | None, bad: int | None, runs: int
) -> None:
    pythons = environments(tmp_path, codes)

    found = bisect(bundle, pythons, deadline_s=60.0)

    assert found.last_good == ("" if good is None else pythons[good])
    assert found.first_bad == ("" if bad is None else pythons[bad])
    assert len(found.tried) <= runs
    assert found.fails == (set(codes) != {"0"})
    assert all("torch 2" in one.version for one in found.tried)


def test_one_environment_is_not_enough(bundle: Path) -> None:
    with pytest.raises(InputError, match="give two or more --python"):
        bisect(bundle, [sys.executable], deadline_s=60.0)


def test_only_inductor_has_a_bisector_of_its_own(bundle: Path) -> None:
    with pytest.raises(InputError, match="is about aot_eager; torch can bisect inductor only"):
        bisect_compiler(bundle, deadline_s=60.0)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (
            "Bisection complete: BisectionResult(backend='inductor', subsystem='lowerings', bisect_number=2, "
            "debug_info='relu')",
            "at fault: inductor, lowerings, number 2: 'relu'",
        ),
        (
            "Bisection complete: BisectionResult(backend='aot_eager', subsystem=None, bisect_number=None, "
            "debug_info=None)",
            "at fault: aot_eager",
        ),
        ("Bisection complete: no issue found", "the bisector found no part whose absence ends the failure"),
        ("No module named torch", "the bisector gave no result (it ended): No module named torch"),
    ],
)
def test_what_the_bisector_of_torch_prints_is_read(text: str, verdict: str) -> None:
    assert _compiler_verdict(text, "") == verdict


@pytest.mark.heavy
def test_the_lowering_at_fault_is_found_with_a_real_bundle_of_inductor(tmp_path: Path) -> None:
    """A fault that torch can inject into the code of relu, from the check to the bisector."""
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef load():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()\n\n\n"
        "def inputs():\n    return (torch.randn(3, 4, generator=torch.Generator().manual_seed(1)),)\n"
    )
    model, folder = str(tmp_path / "net.py"), tmp_path / "check"
    config = 'config={"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}'
    command = [sys.executable, "-m", "torchstone", "check", f"{model}::load", "--inputs", f"{model}::inputs"]
    command += ["--backend", "inductor", "--backend-option", config, "--dir", str(folder), "--no-ir", "--quiet"]
    subprocess.run(command, check=False, timeout=3600)

    bundle = write_bundle(folder, "1", tmp_path / "b.zip", python=sys.executable, deadline_s=1200.0)
    found = bisect_compiler(bundle, deadline_s=3600.0)

    with zipfile.ZipFile(bundle) as archive:
        report = archive.read("report.md").decode()
    assert all(f"- {name}: fails" in report for name in Inductor.variants)
    assert found.verdict == "at fault: inductor, lowerings, number 0: 'relu'"

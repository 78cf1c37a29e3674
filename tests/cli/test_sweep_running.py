import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import MAIN
from tests.cli.sweeps import unary, vectors_in
from torchstone.cli.main import run
from torchstone.sweep.run_folder import runs_in

OPS = ("sin", "cos", "exp", "neg", "abs", "tanh", "sqrt", "erf")
SLOW = 'faults=[{"fault": "slow", "seconds": 0.4}, {"fault": "wrong", "op": "aten.neg.*"}]'
COMMAND = ["sweep", "run", "--dir", "out", "--quiet", "--backend", "faulty", "--backend-option", SLOW, "--jobs", "1"]


def killed_after(results: int, folder: Path) -> None:
    """Start a run and kill it with -9 when so many results are on disk."""
    child = subprocess.Popen([sys.executable, "-c", MAIN, *COMMAND], cwd=folder, stdout=subprocess.DEVNULL)
    while child.poll() is None:
        journals = list(folder.glob("out/runs/*/results.jsonl"))
        if journals and journals[-1].read_bytes().count(b"\n") > results:
            child.kill()
        time.sleep(0.01)
    assert child.returncode == -signal.SIGKILL, "it came to its end before"


def what_matters(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["id"], one["outcome"], one["detail"]) for one in document["results"]]


def test_a_run_that_was_killed_goes_on_where_it_was_and_ends_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors_in(tmp_path / "out", *(unary(f"aten.{op}.default") for op in OPS))
    killed_after(3, tmp_path)
    (broken,) = runs_in(tmp_path / "out")
    before = broken.results()
    assert 3 <= len(before) < len(OPS)
    assert not broken.is_finished
    monkeypatch.chdir(tmp_path)

    code = run(["sweep", "run", "--dir", "out", "--quiet", "--resume", "--json"])

    resumed = json.loads(capsys.readouterr().out)
    assert code == 1
    assert resumed["run"] == broken.name
    assert len(resumed["results"]) == len(OPS)
    assert resumed["outcomes"] == {"passed": 7, "wrong": 1}
    assert {one.id: one.elapsed_s for one in before.values()}.items() <= {
        one["id"]: one["elapsed_s"] for one in resumed["results"]
    }.items()  # what was there was not run again


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_moment_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    vectors_in(tmp_path / "out", *(unary(f"aten.{op}.default") for op in OPS))
    monkeypatch.chdir(tmp_path)
    moment = random.Random(seed)  # noqa: S311 - a moment, not a secret
    child = subprocess.Popen([sys.executable, "-c", MAIN, *COMMAND], stdout=subprocess.DEVNULL)
    while not list(tmp_path.glob("out/runs/*/plan.json")):
        assert child.poll() is None
        time.sleep(0.05)
    time.sleep(moment.uniform(0, 8))
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    (begun,) = runs_in(tmp_path / "out")
    if not begun.is_finished:
        run(["sweep", "run", "--dir", "out", "--quiet", "--resume", "--json"])
        capsys.readouterr()
    run([*COMMAND, "--json"])

    undisturbed = json.loads(capsys.readouterr().out)
    disturbed = json.loads((begun.path / "run.json").read_bytes())
    assert what_matters(disturbed) == what_matters(undisturbed)


@pytest.mark.heavy
def test_a_cluster_gives_the_same_records_as_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    monkeypatch.chdir(tmp_path)
    vectors_in(tmp_path / "out", *(unary(f"aten.{op}.default") for op in OPS))
    told = []
    for executor in ("local", "ray"):
        assert run([*COMMAND, "--executor", executor, "--json"]) == 1
        told.append(json.loads(capfd.readouterr().out.splitlines()[-1]))

    assert what_matters(told[0]) == what_matters(told[1])

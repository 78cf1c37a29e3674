import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, sys
import pytest
from torchstone.capture.op_log import Recording
from torchstone.capture.trace_pytest import RecordingPlugin

plugin = RecordingPlugin(lambda name: Recording())
pytest.main([sys.argv[1], "-q", "-p", "no:cacheprovider"], plugins=[plugin])
ops = {name: sorted({seen.configuration.op for seen in one.seen.values()}) for name, one in plugin.recordings.items()}
print(json.dumps({"ops": ops, "endings": plugin.endings, "details": plugin.details}))
"""
TESTS = """
import pytest
import torch

@pytest.fixture
def three():
    return torch.full((3,), 3.0)

@pytest.fixture
def breaks_later(three):
    yield three
    raise RuntimeError("too late")

def test_passes(three):
    three.neg()

@pytest.mark.parametrize("n", [1, 2])
def test_fails(n):
    torch.ones(n).sin()
    assert n == 0, "a reason"

@pytest.mark.xfail
def test_expected():
    assert torch.ones(1).cos() is None

def test_teardown(breaks_later):
    breaks_later.exp()
"""


def test_every_test_is_recorded_apart_with_its_fixtures_and_its_ending(tmp_path: Path) -> None:
    import json

    (tmp_path / "test_net.py").write_text(TESTS, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "test_net.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    seen = json.loads(done.stdout.splitlines()[-1])

    assert seen["endings"] == {
        "test_net.py::test_passes": "passed",
        "test_net.py::test_fails[1]": "failed",
        "test_net.py::test_fails[2]": "failed",
        "test_net.py::test_expected": "skipped",
        "test_net.py::test_teardown": "failed",
    }
    assert seen["ops"]["test_net.py::test_passes"] == ["aten.full.default", "aten.neg.default"]
    assert "aten.sin.default" in seen["ops"]["test_net.py::test_fails[1]"]
    assert seen["details"]["test_net.py::test_fails[1]"] == "AssertionError: a reason"

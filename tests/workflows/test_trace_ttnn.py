"""Tests and scripts that call real ttnn, traced on its mock device; needs its environment, with torch."""

import json
from pathlib import Path

import pytest

from tests.backends.ttnn.environments import needs_ttnn, ttnn_environment, ttnn_has_torch
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.store.database import Store
from torchstone.workflows.model_source import ModelRequest
from torchstone.workflows.trace_ops import TraceRequest, trace_ops

pytestmark = [pytest.mark.ttnn, needs_ttnn]

TESTS = """
import ttnn

def make(device, *shape):
    return ttnn.allocate_tensor_on_device(
        ttnn.Shape(shape), ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)

def test_own_device():
    device = ttnn.open_device(device_id=0)
    x = make(device, 1, 1, 64, 128)
    kept = ttnn.add(x, x, memory_config=ttnn.L1_MEMORY_CONFIG)
    ttnn.close_device(device)

def test_twice(mesh_device):
    x = make(mesh_device, 1, 1, 32, 64)
    ttnn.relu(x)
    ttnn.relu(x)

def test_refused(device):
    x = make(device, 1, 1, 32, 64)
    ttnn.matmul(x, x)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not ttnn_has_torch():
        pytest.skip("the environment has no torch, which ttnn's tracer needs")
    (tmp_path / "test_net.py").write_text(TESTS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("device", "mesh"), [("n150", 1), ("n300", 2)])
def test_calls_lines_and_memory_of_a_test_are_recorded(here: Path, device: str, mesh: int) -> None:
    request = TraceRequest(
        model=ModelRequest(model="test_net.py"),
        python=ttnn_environment(),
        device=device,
        folder=here / "raw",
        database="x.db",
    )
    result = trace_ops(request)

    one, two, refused = result.summary.sources
    assert [source.ending for source in result.summary.sources] == ["passed", "passed", "failed"]
    assert (two.calls, two.configurations) == (3, 2)  # with the allocation
    assert "a_shape[-1] == b_shape[-2]" in refused.detail
    peaks = {peak.memory: peak for peak in one.peaks}
    assert peaks["L1"].bank_bytes == 2048  # 8 tiles over 64 banks
    assert peaks["L1"].call_site.endswith("test_net.py:11")
    assert peaks["L1_WITH_CIRCULAR_BUFFERS"].bank_bytes == 2048 + 3 * 4096  # two tiles for each operand and the result
    with Store.open("x.db") as store:
        assert store.op_names() == ("ttnn.add", "ttnn.allocate_tensor_on_device", "ttnn.relu")
    (folder,) = (here / "raw").glob("*.ttnn")
    assert len(list(folder.glob("*/graph_report/report.json"))) == 3
    (status,) = [one for one in folder.glob("*/_status.json") if "test_twice" in one.read_text(encoding="utf-8")]
    (made, first, second) = (
        json.loads(line) for line in (status.parent / "_call_sites.jsonl").read_text().splitlines()
    )
    assert [at["call_site"] for at in (made, first, second)] == [f"test_net.py:{line}" for line in (5, 16, 17)]
    relu = json.loads(next(iter(status.parent.glob("*_ttnn_relu_*.json"))).read_text(encoding="utf-8"))
    assert relu["args"][0]["value"]["mesh_device"]["shape"] == [1, mesh]


@pytest.mark.usefixtures("here")
def test_a_process_that_dies_keeps_the_calls_before(capsys: pytest.CaptureFixture[str]) -> None:
    Path("test_dies.py").write_text(
        "import os, ttnn\n"
        "def test_good(device):\n"
        "    ttnn.ones([1, 1, 32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)\n"
        "def test_dies(device):\n"
        "    ttnn.ones([1, 1, 64, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)\n"
        "    os.abort()\n",
        encoding="utf-8",
    )

    assert run(["trace", "test_dies.py", "--python", ttnn_environment(), "--db", "x.db", "--json"]) == EXIT_FINDINGS
    said = capsys.readouterr()
    good, dies = json.loads(said.out)["sources"]
    assert (good["ending"], good["kept"], good["calls"]) == ("passed", True, 1)
    assert (dies["ending"], dies["kept"], dies["calls"]) == ("failed", False, 1)
    assert "SIGABRT" in dies["detail"]


@pytest.mark.usefixtures("here")
def test_a_model_is_sent_to_map(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", "tiny:bert", "--python", ttnn_environment(), "--db", "x.db"]) == EXIT_BAD_INPUT
    assert "torchstone map tiny:bert" in capsys.readouterr().err


def test_help_needs_no_environment() -> None:
    assert run(["trace", "--help"]) == EXIT_FINE

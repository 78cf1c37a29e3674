"""Models mapped to real ttnn on its mock device; needs its environment."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import torchstone
from tests.backends.ttnn.environments import needs_ttnn, ttnn_environment
from torchstone.backends.ttnn.boards import find_board
from torchstone.backends.ttnn.environment import interpreter_of, kernel_cache
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE

pytestmark = [pytest.mark.ttnn, needs_ttnn]

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Linear(8, 5)

    def forward(self, x):
        pooled = torch.relu(self.first(x)).mean((2, 3))
        return torch.histc(self.second(pooled)) if {odd} else self.second(pooled)

def load():
    return Net().eval(), (torch.randn(1, 3, 17, 18),)
"""


def model(tmp_path: Path, *, odd: bool) -> str:
    (tmp_path / "net.py").write_text(MODEL.replace("{odd}", str(odd)), encoding="utf-8")
    return f"{tmp_path / 'net.py'}::load"


def ran_alone(file: Path, folder: Path) -> str:
    """What a generated module prints in the environment that has ttnn."""
    python = interpreter_of(ttnn_environment())
    variables = os.environ | find_board("n150").variables(kernel_cache(python))
    done = subprocess.run([python, str(file)], cwd=folder, env=variables, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 else done.stderr


def test_a_plain_model_is_accepted_and_never_called_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--python", ttnn_environment(), "--dir", str(tmp_path / "out")]

    assert run(["map", model(tmp_path, odd=False), *options]) == EXIT_FINE
    said = capsys.readouterr().out
    assert "100.00 %" in said
    assert "not that its result is right" in said
    assert "pass" not in said
    document = json.loads((tmp_path / "out" / "mapping.json").read_text(encoding="utf-8"))
    assert document["plan"]["outcome"] == "accepted"
    assert len(document["plan"]["dram_bank_bytes"]) > 5
    plan = document["plan"]
    assert (
        plan["weights"]["placed_bytes"] == plan["dram_bank_bytes"][0] * plan["dram_banks"]
    )  # by arithmetic, and by ttnn
    assert None not in plan["l1_op_bytes"]
    assert max(plan["l1_buffer_bytes"]) > 0
    assert max(plan["l1_op_bytes"]) <= plan["l1_capacity_bytes"]
    linear = next(name for name in document["skeletons"] if name.endswith("second"))
    assert ran_alone(tmp_path / "out" / document["skeletons"][linear], tmp_path) == "accepted"
    assert "On Tenstorrent" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_an_op_without_a_counterpart_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--python", ttnn_environment(), "--json"]

    assert run(["map", model(tmp_path, odd=True), *options]) == EXIT_FINDINGS
    document = json.loads(capsys.readouterr().out)
    lost = [one["op"] for one in document["ops"] if one["outcome"] == "unmapped"]
    assert lost == ["aten.histc.default"]
    assert document["mock"] is True


def test_a_missing_rule_file_is_an_error_of_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--python", ttnn_environment(), "--rules", str(tmp_path / "none.py")]

    assert run(["map", model(tmp_path, odd=False), *options]) == EXIT_BAD_INPUT
    assert "none.py" in capsys.readouterr().err


ASK = """
import json, sys
import ttnn
from torchstone.backends.ttnn.device import open_device, set_up
from torchstone.mapping.child.footprint import Probe, allocated, highest

set_up({})
device = open_device()


def make(*shape, memory=ttnn.DRAM_MEMORY_CONFIG):
    return ttnn.allocate_tensor_on_device(ttnn.Shape(shape), ttnn.bfloat16, ttnn.TILE_LAYOUT, device, memory)


x, w, m = make(1, 1, 64, 512, memory=ttnn.L1_MEMORY_CONFIG), make(512, 1024), make(1, 8, 64, 64)
bias = make(1, 1024)
calls = {
    "linear": lambda: ttnn.linear(x, w, bias=bias),
    "softmax": lambda: ttnn.softmax(m, 3),
    "gelu": lambda: ttnn.gelu(x),
    "layer_norm": lambda: ttnn.layer_norm(x),
    "attention": lambda: ttnn.transformer.scaled_dot_product_attention(m, m, m, is_causal=True),
    "add": lambda: ttnn.add(x, x, memory_config=ttnn.L1_MEMORY_CONFIG),
    "permute": lambda: ttnn.permute(m, [0, 2, 1, 3]),
    "concat": lambda: ttnn.concat([x, x], 3),
    "rms_norm": lambda: ttnn.rms_norm(x),
}
graph = ttnn._ttnn.graph
for name, call in calls.items():
    before = allocated()
    graph.begin_graph_capture(graph.RunMode.NO_DISPATCH)
    held = call()
    nodes = graph.end_graph_capture()
    assert allocated() == before, name  # nothing was allocated
    del held
    l1, buffers, dram = highest(nodes)
    stated = ttnn.graph.extract_resource_usage_per_core(nodes)
    assert l1 == stated.peak_total, (name, l1, stated.peak_total)
    kept = [one["params"] for one in nodes if one["node_type"] == "buffer_allocate"]
    freed = [one["params"] for one in nodes if one["node_type"] == "buffer_deallocate"]
    made = call()
    after = allocated()
    for at, memory in enumerate(("L1", "DRAM")):
        sizes = [sum(o["max_size_per_bank"] for o in some if o["type"] == memory) for some in (kept, freed)]
        assert after[at] - before[at] == sizes[0] - sizes[1], (name, memory)
    del made
print("agreed")
"""


def test_the_peaks_of_calls_are_those_of_ttnn_itself(tmp_path: Path) -> None:
    start = (
        "import sys, importlib.util as u; where = sys.argv[1]; "
        "spec = u.spec_from_file_location('torchstone', where + '/__init__.py', submodule_search_locations=[where]); "
        "package = u.module_from_spec(spec); sys.modules['torchstone'] = package; spec.loader.exec_module(package)\n"
    )
    (tmp_path / "ask.py").write_text(start + ASK, encoding="utf-8")
    python = interpreter_of(ttnn_environment())
    variables = os.environ | find_board("n150").variables(kernel_cache(python))
    command = [python, str(tmp_path / "ask.py"), str(Path(torchstone.__file__).parent)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    assert done.stdout.strip().endswith("agreed"), done.stderr[-2000:]


BIG = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x):
        return self.inner(x).expand(40, 16384, 16384) + 1.0

def load():
    return Net().eval(), (torch.empty(1, 16384, 16384),)
"""


def test_a_model_that_does_not_fit_names_the_op_and_the_sizes(tmp_path: Path) -> None:
    (tmp_path / "big.py").write_text(BIG, encoding="utf-8")
    options = ["--python", ttnn_environment(), "--dir", str(tmp_path / "out"), "--no-search", "--quiet"]

    assert run(["map", f"{tmp_path / 'big.py'}::load", *options]) == EXIT_FINDINGS
    plan = json.loads((tmp_path / "out" / "mapping.json").read_text(encoding="utf-8"))["plan"]
    assert plan["outcome"] == "out of memory"
    assert plan["failed_op"] in ("aten.expand.default", "aten.add.Tensor")
    assert "DRAM" in plan["detail"]


def test_a_wrong_path_is_said_before_an_environment_is_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["map", str(tmp_path / "none.py::load"), "--python", str(tmp_path / "nowhere")]) == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert "none.py" in said
    assert "nowhere" not in said


def test_cost_shows_the_plan_beside_its_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--hardware", "n150", "--json", "--quiet"]

    assert run(["cost", model(tmp_path, odd=False), "--python", ttnn_environment(), *options]) == EXIT_FINE
    prediction = json.loads(capsys.readouterr().out)["prediction"]
    plan = prediction["plan"]
    assert plan["outcome"] == "accepted"
    assert run(["cost", model(tmp_path, odd=False), "--json", "--quiet"]) == EXIT_FINE
    loose = json.loads(capsys.readouterr().out)["totals"]["peak_bytes"]
    assert plan["estimate_bytes"] == loose < prediction["peak_bytes"]  # tiles are a reason for the difference
    assert sum(size for _, size in plan["difference"]) == plan["dram_bytes"] - plan["estimate_bytes"]

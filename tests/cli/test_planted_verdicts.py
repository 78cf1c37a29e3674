"""Faults that a fixed threshold passes and correct results that it refuses, through the real commands."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from torchstone.backends.lookup import open_backend
from torchstone.cli.main import run

NET = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.act, self.down = nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))

def load_gelu():
    return nn.GELU()

def load_model():
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(6)), nn.LayerNorm(64)).eval()

def normed():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Sigmoid())
    with torch.no_grad():
        net[1].bias += 9  # the sigmoid is nearly constant: PCC sees its rounding alone
    return net.eval()

def get_inputs():
    torch.manual_seed(3)
    return torch.randn(2, 16, 64)  # rows of nearly equal values would let the norms amplify the rounding of bfloat16

def images():
    torch.manual_seed(1)
    return torch.randn(2, 3, 8, 8)
"""
BACKEND = """
from torch.utils._python_dispatch import TorchDispatchMode
from torchstone.backends import availability_of

class Scaled:
    name, forks = "scaled", True

    def __init__(self, factor=1.2):
        self.factor = float(factor)

    def availability(self):
        return availability_of(["torch"], needs="torch")

    def warm_up(self): pass
    def reset(self): pass
    def export(self, module, args, kwargs): return {}

    def compile(self, module, args, kwargs):
        backend = self

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                found = func(*args, **(kwargs or {}))
                return found * backend.factor if "gelu" in str(func) else found

        def run(*args, **kwargs):
            with Mode():
                return module(*args, **kwargs)

        return run
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "backend.py").write_text(BACKEND)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def net_in(folder: Path, name: str) -> tuple[nn.Module, torch.Tensor]:
    scope: dict[str, object] = {"__name__": "net"}
    exec((folder / "net.py").read_text(), scope)  # noqa: S102 - the text above
    return scope[name](), scope["get_inputs"]()  # type: ignore[operator]


# --- check ---


@pytest.mark.parametrize(
    ("factor", "state"),
    [("1.2", "wrong"), ("1.0000037", "suspicious")],  # a model that is only suspicious walks on to the op that is wrong
)
def test_a_scaled_gelu_in_every_layer_of_a_float32_model(
    folder: Path, capsys: pytest.CaptureFixture[str], factor: str, state: str
) -> None:
    """A factor of 1.2 leaves a PCC of more than 0.99."""
    options = ["--backend-option", f"factor={factor}", "--no-ir", "--json"]
    asked = ["check", "net.py::load_model", "--backend", "backend.py::Scaled", "--dir", "out"]

    assert run([*asked, *options, "--quiet"]) == 1
    root = json.loads(capsys.readouterr().out)["modules"][0]["numbers"]
    assert root["state"] == state
    assert root["pcc"] > 0.99
    assert root["ulp_histogram"]
    assert len(root["worst_at"]) == 3
    assert "How a verdict is made" in (folder / "out" / "summary.md").read_text()
    assert "How a verdict is made" in (folder / "out" / "report.html").read_text()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("strict", "code"), [(False, 0), (True, 1)])
def test_what_is_only_suspicious_fails_with_strict_alone(
    capsys: pytest.CaptureFixture[str], code: int, *, strict: bool
) -> None:
    asked = ["check", "net.py::load_gelu", "--backend", "backend.py::Scaled", "--backend-option", "factor=1.0000014"]

    assert run([*asked, "--no-ir", "--json", "--quiet", *(["--strict"] if strict else [])]) == code
    assert json.loads(capsys.readouterr().out)["modules"][0]["numbers"]["state"] == "suspicious"


@pytest.mark.usefixtures("folder")
def test_the_same_passes_by_pcc_where_a_user_asks_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["check", "net.py::load_model", "--backend", "backend.py::Scaled", "--no-ir", "--pcc", "0.99"]

    assert run([*asked, "--backend-option", "factor=1.02"]) == 0
    assert "by the tolerances that were asked for" in capsys.readouterr().out


@pytest.mark.skipif(not open_backend("onnxruntime").availability().usable, reason="onnxruntime is not installed")
@pytest.mark.usefixtures("folder")
def test_nearly_constant_values_and_statistics_that_nobody_reads_pass(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["check", "net.py::normed", "--inputs", "net.py::images", "--backend", "onnxruntime", "--no-ir", "--json"]

    assert run([*asked, "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["modules"][0]["numbers"]["state"] == "passed"


# --- reference: the outputs of the model alone ---


def weight_times(net: nn.Module) -> None:
    with torch.no_grad():
        net[3].down.weight *= 1.5  # type: ignore[index]


def relu_for_gelu(net: nn.Module) -> None:
    net[3].act = nn.ReLU()  # type: ignore[index]


def test_a_fault_in_one_layer_is_seen_at_the_outputs_and_a_correct_bfloat16_port_passes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["reference", "net.py::load_model", "--dir", "golden", "--quiet"]) == 0
    found = {}
    for name, change in {"weight": weight_times, "relu": relu_for_gelu, "none": None}.items():
        for dtype in (torch.float32, torch.bfloat16):
            net, x = net_in(folder, "load_model")
            if change is not None:
                change(net)
            with torch.no_grad():
                save_file({"outputs": net.to(dtype)(x.to(dtype)).contiguous()}, folder / "port.safetensors")
            capsys.readouterr()
            code = run(["reference", "compare", "golden", "port.safetensors", "--partial", "--json", "--quiet"])
            output = json.loads(capsys.readouterr().out)["tensors"][-1]
            found[name, str(dtype)] = (code, output["state"])

    assert found == {
        ("weight", "torch.float32"): (1, "wrong"), ("weight", "torch.bfloat16"): (1, "wrong"),
        ("relu", "torch.float32"): (1, "wrong"), ("relu", "torch.bfloat16"): (1, "wrong"),
        ("none", "torch.float32"): (0, "passed"), ("none", "torch.bfloat16"): (0, "passed"),
    }  # fmt: skip

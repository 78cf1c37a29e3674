"""The verdict on drift: from numbers, and from models with planted backends."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchstone.capture.capture_model import capture
from torchstone.check.check_model import Subject, run_check
from torchstone.check.drift import classify, layer_rows, with_precise_set
from torchstone.check.settings import Folder, Settings
from torchstone.record.check import DriftKind
from torchstone.report.render import write_report
from torchstone.workflows.check import STAGES


def layer(number: int, added: float, factor: float = 1.0, inherited: float = 1e-3, **more: Any) -> dict[str, Any]:
    error = {"relative": added, "multiple": added * 1e6}
    total = {"relative": added + inherited, "multiple": (added + inherited) * 1e6}
    about = {"path": f"layers.{number}", "class_name": "Block", "alone": error, "added": error, "total": total}
    return about | {"inherited": inherited, "factor": factor} | more


FINAL = {"relative": 1e-2, "multiple": 1e4}


def test_layers_that_add_equally_have_no_single_culprit() -> None:
    found = classify([layer(number, 1e-3) for number in range(24)], FINAL)

    assert found.kind is DriftKind.UNIFORM
    assert found.verdict.startswith("no single culprit: 24 layers add about equally")
    assert found.verdict.endswith("first layer beyond noise: layers.0")
    assert found.layers[5].share == pytest.approx(1 / 24)


def test_a_last_layer_without_a_residual_is_not_taken_for_the_source() -> None:
    layers = [layer(number, 5e-4) for number in range(6)] + [layer(6, 1.6e-3)]

    assert classify(layers, {"relative": 3e-3, "multiple": 3e3}).kind is DriftKind.UNIFORM


def test_a_layer_that_adds_nearly_all_is_the_source() -> None:
    layers = [layer(number, 1e-2 if number == 7 else 1e-5) for number in range(12)]

    found = classify(layers, FINAL)

    assert found.kind is DriftKind.SINGLE_SOURCE
    assert found.culprits == ("layers.7",)


def test_a_source_within_a_weaker_drift_is_found() -> None:
    layers = [layer(number, 1e-2 if number == 7 else 1e-3) for number in range(12)]

    assert classify(layers, FINAL).culprits == ("layers.7",)


def test_few_sources_are_named() -> None:
    layers = [layer(number, 1e-2 if number in (3, 9) else 0.0) for number in range(12)]

    found = classify(layers, FINAL)

    assert found.kind is DriftKind.SEVERAL_SOURCES
    assert found.culprits == ("layers.3", "layers.9")


def test_a_layer_that_multiplies_what_it_inherits_is_an_amplifier() -> None:
    layers = [layer(number, 1e-3, factor=9.0 if number == 18 else 1.01) for number in range(24)]

    found = classify(layers, FINAL)

    assert found.kind is DriftKind.AMPLIFIER
    assert found.verdict.startswith("layers.18 amplifies 9x")


def test_an_amplifier_before_all_errors_amplifies_nothing() -> None:
    layers = [layer(number, 0.0 if number < 3 else 1e-3, factor=9.0 if number == 2 else 1.0) for number in range(12)]

    assert classify(layers, FINAL).kind is DriftKind.UNIFORM


def test_errors_within_noise_are_no_drift() -> None:
    found = classify([layer(number, 1e-6, inherited=1e-6) for number in range(6)], {"relative": 1e-6, "multiple": 1.0})

    assert found.kind is DriftKind.NONE
    assert found.verdict.startswith("no drift: every layer is within noise")


def test_an_error_that_no_layer_adds_comes_from_outside() -> None:
    layers = [layer(number, 0.0, inherited=0.0 if number < 3 else 1e-2) for number in range(6)]

    found = classify(layers, FINAL)

    assert found.kind is DriftKind.OUTSIDE_LAYERS
    assert "before layers.3" in found.verdict


def test_an_error_that_needs_inherited_errors_counts_as_amplification() -> None:
    layers = [layer(number, 1e-3) for number in range(6)]
    wrong = {"relative": 2e-2, "multiple": 2e4}
    layers[4] |= {
        "alone": {"relative": 0.0, "multiple": 0.0},
        "added": wrong,
        "total": wrong,
        "alone_on_inherited": wrong,
    }

    found = classify(layers, {"relative": 2e-2, "multiple": 2e4})

    assert found.kind is DriftKind.AMPLIFIER
    assert found.culprits == ("layers.4",)
    assert found.layers[4].amplification == pytest.approx(20.0)


def test_what_is_unknown_is_said() -> None:
    found = with_precise_set(classify([layer(0, 1e-3), layer(1, 1e-3)], FINAL), {"why": "the time ran out"})

    assert (found.precise_set, found.why_no_precise_set) == (None, "the time ran out")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(x)


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(4, 4), nn.Linear(4, 4)
        self.stages = nn.Sequential(nn.Sequential(Block(), Block()), nn.Sequential(Block(), Block()))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(x)))


def paths(model: nn.Module, x: Tensor) -> list[str]:
    trace = capture(model, x, "cpu", reuse=False)
    return [trace.modules[trace.module_calls.modules[row]].path for row in layer_rows(trace)]


def test_stacks_and_wrappers_are_opened_and_blocks_are_not() -> None:
    stages = [f"stages.{stage}.{block}" for stage in range(2) for block in range(2)]

    assert paths(Wrapped(), torch.ones(2, 4)) == ["stem", *stages, "head"]


def test_a_model_of_one_block_is_divided_into_its_parts() -> None:
    assert paths(nn.Sequential(Block()), torch.ones(2, 4)) == ["0.linear"]
    assert paths(nn.Linear(4, 4), torch.ones(2, 4)) == []


BACKEND = """
import torch
from torch.overrides import TorchFunctionMode
from torchstone.backends.eager import Eager

class Rounds(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result.bfloat16().float() if func is torch.nn.functional.linear else result

class Chip(Eager):
    name = "chip"

    def compile(self, module, args, kwargs):
        def run(*args, **kwargs):
            with torch.no_grad(), Rounds():
                return module(*args, **kwargs)
        return run
"""
MODEL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

def load_model():
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(6)))

def get_inputs():
    torch.manual_seed(1)
    return torch.randn(2, 8, 16)
"""


@pytest.mark.parametrize(("backend", "kind"), [("chip.py::Chip", DriftKind.UNIFORM), ("eager", DriftKind.NONE)])
def test_a_check_reports_drift_with_the_operators_to_keep(tmp_path: Path, backend: str, kind: DriftKind) -> None:
    (tmp_path / "chip.py").write_text(BACKEND)
    (tmp_path / "model.py").write_text(MODEL)
    spec = str(tmp_path / backend) if "::" in backend else backend
    settings = Settings(backend=spec, exports_ir=False, drift=True)
    subject = Subject(model=f"{tmp_path}/model.py::load_model", inputs=f"{tmp_path}/model.py::get_inputs")

    result = run_check(subject, settings, Folder(path=tmp_path / "out"), stages=STAGES)

    drift = result.drift
    assert drift is not None
    assert (drift.kind, len(drift.layers), drift.observed) == (kind, 6, "one run")
    if kind is DriftKind.UNIFORM:
        assert drift.precise_set is not None
        assert (drift.precise_set.ops, drift.precise_set.calls) == (("linear",), 12)
        assert drift.precise_set.noise_multiple_after <= 3 < drift.precise_set.noise_multiple_before
        page = write_report(tmp_path / "out").read_text(encoding="utf-8")
        assert "Error over depth" in page

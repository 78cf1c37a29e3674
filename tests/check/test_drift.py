"""The verdict on drift: from numbers, and from models with planted backends."""

from math import hypot
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

NOISE = 1e-6


def error(relative: float) -> dict[str, float]:
    return {"relative": relative, "multiple": relative / NOISE}


def chain(added: list[float], factors: dict[int, float] | None = None) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Layers that add these errors, each to what the one before passes on; and the error at the end."""
    layers = []
    total = 0.0
    for number, one in enumerate(added):
        factor = (factors or {}).get(number, 1.0)
        about: dict[str, Any] = {
            "path": f"layers.{number}",
            "class_name": "Block",
            "alone": error(one),
            "added": error(one),
        }
        about |= {"inherited": total, **({"factor": factor} if total else {})}
        total = hypot(total * factor, one)
        layers.append(about | {"total": error(total)})
    return layers, error(total)


def test_layers_that_add_equally_have_no_single_culprit() -> None:
    found = classify(*chain([1e-3] * 24))

    assert found.kind is DriftKind.UNIFORM
    assert found.verdict.startswith("no single culprit: 24 layers add about equally")
    assert found.verdict.endswith("first layer beyond noise: layers.0")
    assert found.layers[5].share == pytest.approx(1 / 24)


def test_errors_in_one_direction_are_not_taken_for_one_from_outside() -> None:
    layers, _ = chain([1e-3] * 24)
    for number, one in enumerate(layers):
        one |= {"inherited": number * 1e-3, "total": error((number + 1) * 1e-3)}

    assert classify(layers, error(24e-3)).kind is DriftKind.UNIFORM


def test_a_last_layer_without_a_residual_is_not_taken_for_the_source() -> None:
    assert classify(*chain([5e-4] * 6 + [1.6e-3])).kind is DriftKind.UNIFORM


def test_a_layer_that_adds_nearly_all_is_the_source() -> None:
    found = classify(*chain([1e-2 if number == 7 else 1e-7 for number in range(12)]))

    assert found.kind is DriftKind.SINGLE_SOURCE
    assert found.culprits == ("layers.7",)


def test_a_source_within_a_weaker_drift_is_found() -> None:
    assert classify(*chain([1e-2 if number == 7 else 1e-3 for number in range(12)])).culprits == ("layers.7",)


def test_few_sources_are_named() -> None:
    found = classify(*chain([1e-2 if number in (3, 9) else 0.0 for number in range(12)]))

    assert found.kind is DriftKind.SEVERAL_SOURCES
    assert found.culprits == ("layers.3", "layers.9")


def test_a_layer_that_multiplies_what_it_inherits_is_an_amplifier() -> None:
    found = classify(*chain([1e-3] * 24, {18: 9.0}))

    assert found.kind is DriftKind.AMPLIFIER
    assert found.verdict.startswith("layers.18 amplifies 9x")


def test_an_amplifier_before_all_errors_amplifies_nothing() -> None:
    assert classify(*chain([0.0] * 3 + [1e-3] * 9, {2: 9.0})).kind is DriftKind.UNIFORM


def test_an_amplifier_whose_effect_is_undone_is_not_the_cause() -> None:
    assert classify(*chain([1e-3] * 12, {6: 9.0, 7: 0.05})).kind is DriftKind.UNIFORM


def test_errors_within_noise_are_no_drift() -> None:
    found = classify(*chain([NOISE] * 6))

    assert found.kind is DriftKind.NONE
    assert found.verdict.startswith("no drift: every layer is within noise")


def test_an_error_that_no_layer_adds_comes_from_outside() -> None:
    layers, _ = chain([0.0] * 6)
    for one in layers[3:]:
        one |= {"inherited": 1e-2, "total": error(1e-2)}

    found = classify(layers, error(1e-2))

    assert found.kind is DriftKind.OUTSIDE_LAYERS
    assert "before layers.3" in found.verdict
    assert "after the last layer" in classify(chain([0.0] * 6)[0], error(1e-2)).verdict


def test_a_second_output_with_a_small_error_is_not_taken_for_one_from_outside() -> None:
    layers, final = chain([1e-3] * 6 + [0.0], {6: 0.1})  # a pooler at the end; the other output is the furthest off

    assert classify(layers, error(final["relative"] * 10)).kind is DriftKind.UNIFORM


def test_an_error_that_needs_inherited_errors_counts_as_amplification() -> None:
    layers, _ = chain([1e-3] * 6)
    wrong = error(2e-2)
    layers[4] |= {"alone": error(0.0), "added": wrong, "total": wrong, "alone_on_inherited": wrong}

    found = classify(layers, wrong)

    assert found.kind is DriftKind.AMPLIFIER
    assert found.culprits == ("layers.4",)
    assert found.layers[4].amplification == pytest.approx(10.0)


def test_what_is_unknown_is_said() -> None:
    found = with_precise_set(classify(*chain([1e-3] * 2)), {"why": "the time ran out"})

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


class Shares(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), self.act) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.act(layer(x))
        return x


def test_a_module_that_is_called_elsewhere_too_is_no_layer() -> None:
    found = paths(Shares(), torch.ones(2, 4))

    assert [path for path in found if path.endswith("0")] == ["layers.0.0", "layers.1.0", "layers.2.0"]
    assert found.count("act") in (0, 6)


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

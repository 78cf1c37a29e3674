"""Ports with and without planted faults, under other names and in other layouts, end to end."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from benchmarks.port_faults import build
from benchmarks.ports import CORRECT, Case, Subject, cases_of, distance
from torchstone.models.inputs import Inputs
from torchstone.reference import load_golden
from torchstone.reference.compare_port import basis_of
from torchstone.reference.golden_files import save_golden
from torchstone.reference.golden_noise import GoldenNoise, measure_noise, save_noise
from torchstone.reference.make import Request, make_golden


def reference(model: nn.Module, inputs: Inputs, folder: Path) -> Subject:
    watched = tuple(name for name, one in model.named_modules() if name and not isinstance(one, nn.ModuleList))
    golden = save_golden(folder, make_golden(model, inputs, Request(watched=watched)))
    save_noise(folder, measure_noise(golden, model, inputs))
    return Subject("model", model, inputs, load_golden(folder))


def noise_of(subject: Subject) -> GoldenNoise:
    noise = basis_of(subject.golden, None).noise
    assert isinstance(noise, GoldenNoise)
    return noise


@pytest.mark.parametrize("name", ["mixer", "small-resnet"])
def test_the_noise_of_a_model_with_float_inputs_is_small(name: str, tmp_path: Path) -> None:
    subject = reference(*build(name), tmp_path)
    noise = noise_of(subject)

    assert noise.residuals
    for path in noise.residuals:
        exact = noise.float64(path)
        assert exact is not None
        assert distance(subject.golden.tensors[path], exact) < 1e-5, path


class Tables(nn.Module):
    """Frequencies in a buffer, as rotary embeddings have them: a cast of the model rounds them, too."""

    frequencies: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("frequencies", 10000 ** (-torch.arange(8) / 8))
        self.angles, self.head = nn.Identity(), nn.Linear(8, 4)

    def forward(self, positions: Tensor) -> Tensor:
        angles = positions[:, None].float() * self.frequencies.float()
        return torch.as_tensor(self.head(self.angles(angles.cos().to(self.frequencies.dtype))))


def test_a_model_that_was_cast_with_its_buffers_is_a_correct_port(tmp_path: Path) -> None:
    inputs = Inputs(args=(torch.arange(200),), kwargs={}, origin="positions")
    subject = reference(Tables().eval(), inputs, tmp_path)

    right = cases_of(subject, (), 0)

    assert [case.bad for case in right if case.bad] == []


def test_a_float64_value_that_a_noisy_run_refutes_is_not_used(tmp_path: Path) -> None:
    class Other(nn.Module):
        """Computes something else while it is observed in float64."""

        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = nn.Linear(8, 8), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return torch.as_tensor(self.layer(x)) * (3 if self.calls == 3 else 1)

    inputs = Inputs(args=(torch.randn(4, 8),), kwargs={}, origin="generated")
    subject = reference(Other(), inputs, tmp_path)

    exact = noise_of(subject).float64("outputs")

    assert exact is not None
    assert distance(subject.golden.tensors["outputs"], exact) < 1e-5


def test_faults_are_found_where_they_begin_under_other_names_and_in_other_layouts(tmp_path: Path) -> None:
    subject = reference(*build("mixer"), tmp_path)

    cases = cases_of(subject, ("scale 20 %", "FFN weight x1.5", "wrong activation", "transposed weight"), 1)

    assert sum(case.above_noise for case in cases) == 8
    assert [case.bad for case in cases if case.bad] == []


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["plain-transformer", "small-resnet", "recurrent"])
def test_all_faults_of_plain_models_are_found_and_correct_ports_pass(name: str, tmp_path: Path) -> None:
    from benchmarks.port_faults import FAULTS

    subject = reference(*build(name), tmp_path)

    assert [f"{case}" for case in cases_of(subject, tuple(FAULTS), 1) if case.bad] == []


def test_the_benchmark_can_fail() -> None:
    """Its truth does not come from what it judges."""
    assert Case("m", "float32", "scale", "e", above_noise=True, passed=True).bad.startswith("missed")
    assert Case("m", "float32", "", "e", passed=False, wrong=["x"]).bad.startswith("false alarm")
    wrong_place = Case("m", "float32", "scale", "e", above_noise=True, first_wrong="b", first_expected=("a",))
    assert "not ('a',)" in wrong_place.bad
    assert len({str(one) for one in CORRECT}) == len(CORRECT)

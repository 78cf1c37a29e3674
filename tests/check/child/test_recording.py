import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.capture.nets import CachedStack, Feed, Stack, cache
from tests.check.held import kept_model
from torchstone.capture.capture_model import capture
from torchstone.check.child.model import LoadedModel
from torchstone.check.child.recording import RANDOM_STATE, TraceMismatchError, keep, record_task
from torchstone.check.plan import plan
from torchstone.check.record_values import read_unserializable, wanted_values
from torchstone.numerics.tensor_files import read_tensors


class Fickle(nn.Module):
    """Does something else each time."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = [0]

    def forward(self, x: Tensor) -> Tensor:
        self.calls[0] += 1
        return x + 1 if self.calls[0] == 1 else x * 2


class Overwrites(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y.add_(1)
        return y


class TakesAnything(nn.Module):
    def forward(self, x: Tensor, _how: object) -> Tensor:
        return x + 1


class PassesALambda(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = TakesAnything()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, lambda: None)


def test_inputs_and_outputs_of_every_unit_are_kept(tmp_path: Path) -> None:
    model = Stack(Feed(), Feed())
    x = torch.arange(16.0).reshape(2, 8)

    kept = kept_model(model, x, tmp_path)

    tensors = read_tensors(kept.folder.values_of(0))
    assert torch.equal(tensors["arg.0"], x)
    with torch.no_grad():
        assert torch.equal(tensors["out.0"], model(x))
    assert {path.stem for path in kept.folder.values.glob("*.json")} == {
        f"call_{unit.row:05}" for unit in kept.plan.units.values()
    }


def test_an_input_is_kept_as_it_was_before_the_module_changed_it(tmp_path: Path) -> None:
    kept = kept_model(CachedStack(2), {"x": torch.ones(1, 2, 8), "past": cache(2)}, tmp_path)

    document = json.loads(kept.folder.values_of(0).with_suffix(".json").read_text())
    assert "object" in dict(document["kwargs"]["object"]["items"])["past"]
    assert read_unserializable(kept.folder) == {}


def test_the_model_and_the_inputs_are_as_before_afterwards(tmp_path: Path) -> None:
    x = torch.ones(3)

    kept_model(Overwrites(), x, tmp_path)

    assert torch.equal(x, torch.ones(3))


def test_weights_are_kept_only_where_they_are_asked_for(tmp_path: Path) -> None:
    model = Feed()

    kept_model(model, torch.ones(2, 8), tmp_path / "with", weights=True)
    kept_model(model, torch.ones(2, 8), tmp_path / "without")

    weights = read_tensors(tmp_path / "with" / "check_work" / "values" / "weights.safetensors")
    assert {tuple(tensor.shape) for tensor in weights.values()} >= {(16,), (8,)}
    assert not (tmp_path / "without" / "check_work" / "values" / "weights.safetensors").exists()


def test_a_model_that_goes_another_way_is_told(tmp_path: Path) -> None:
    model = Fickle()
    trace = capture(model, torch.ones(2), "cpu", reuse=False)
    model.calls[0] = 1
    held = LoadedModel(model, (torch.ones(2),), {}, {})

    with pytest.raises(TraceMismatchError, match=r"op call 0 is aten\.mul"):
        keep(held, wanted_values(trace, {unit.row for unit in plan(trace).units.values()}, weights=False), tmp_path)


def test_a_model_that_ends_early_is_told(tmp_path: Path) -> None:
    trace = capture(Feed(), torch.ones(2, 8), "cpu", reuse=False)
    wanted = wanted_values(trace, {unit.row for unit in plan(trace).units.values()}, weights=False)
    wanted["ops"] += ["aten.relu.default"]

    with pytest.raises(TraceMismatchError, match="but"):
        keep(LoadedModel(Feed(), (torch.ones(2, 8),), {}, {}), wanted, tmp_path)


def test_arguments_without_a_written_form_are_named(tmp_path: Path) -> None:
    kept = kept_model(PassesALambda(), torch.ones(2), tmp_path)

    assert list(read_unserializable(kept.folder)) == ["1"]
    assert "cannot be found again" in read_unserializable(kept.folder)["1"]


def test_the_random_state_is_kept_where_numbers_are_drawn(tmp_path: Path) -> None:
    kept = kept_model(nn.Dropout().train(), torch.ones(4), tmp_path)

    assert RANDOM_STATE in read_tensors(kept.folder.values_of(0))


def test_the_task_reads_what_is_wanted_from_a_file(tmp_path: Path) -> None:
    kept = kept_model(Feed(), torch.ones(2, 8), tmp_path / "first")
    wanted = tmp_path / "wanted.json"
    wanted.write_text(
        json.dumps(wanted_values(kept.trace, {unit.row for unit in kept.plan.units.values()}, weights=False))
    )

    answer = record_task({"wanted": str(wanted), "folder": str(tmp_path / "again")})

    assert answer == {"unwritten": {}}
    assert (tmp_path / "again" / "call_00000.safetensors").is_file()

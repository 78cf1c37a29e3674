from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.capture.nets import Feed, Stack
from tests.check.held import faulty, kept_model
from torchstone.check.settings import Settings, read_tolerances


class PassesALambda(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Calls()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, lambda: 1)


class Calls(nn.Module):
    def forward(self, x: Tensor, number: object) -> Tensor:
        return x + number()  # type: ignore[operator]


def test_a_module_is_asked_about_with_its_own_tolerance(tmp_path: Path) -> None:
    kept = kept_model(Stack(Feed()), torch.ones(2, 8), tmp_path)
    settings = Settings(backend="eager", tolerances=read_tolerances(("layers.0=0.5", "Linear=0.7")))
    requests = kept.requests(settings)

    asked = {unit.id: requests.for_unit(unit).task.payload["tolerance"].get("pcc") for unit in kept.plan.units.values()}

    assert asked == {"mod_000_root": None, "mod_002_0": 0.5, "mod_003_up": 0.7, "mod_004_down": 0.7}


def test_where_arguments_have_no_written_form_the_recorded_ops_run(tmp_path: Path) -> None:
    kept = kept_model(PassesALambda(), torch.ones(2), tmp_path)
    requests = kept.requests(faulty())
    root, inner = kept.plan.units.values()

    assert requests.for_unit(root).task.entry.endswith(":run_module")
    assert requests.for_unit(inner).task.entry.endswith(":run_program")
    assert requests.no_code_reason(inner).startswith("its recorded ops ran, not its code")
    assert requests.no_code_reason(root) == ""


def test_ir_goes_to_a_folder_of_the_module(tmp_path: Path) -> None:
    kept = kept_model(nn.ReLU(), torch.ones(2), tmp_path)
    unit = kept.plan.units["mod_000_root"]

    asked = kept.requests(Settings(backend="eager", ir_of_passing=True)).for_unit(unit)

    assert asked.ir_folder == "irs/mod_000_root"
    assert asked.task.payload["irs"] == str(tmp_path / "irs/mod_000_root")
    assert asked.ir_task is None
    assert "irs" not in kept.requests(faulty()).for_unit(unit).task.payload


def test_ir_is_exported_by_a_task_of_its_own_unless_that_of_all_modules_is_asked_for(tmp_path: Path) -> None:
    kept = kept_model(nn.ReLU(), torch.ones(2), tmp_path)

    asked = kept.requests(Settings(backend="eager")).for_unit(kept.plan.units["mod_000_root"])

    assert "irs" not in asked.task.payload
    assert asked.ir_task is not None
    assert asked.ir_task.payload["irs"] == str(tmp_path / "irs/mod_000_root")


@pytest.mark.heavy
def test_equal_ops_on_equal_values_have_one_key(tmp_path: Path) -> None:
    settings = Settings(backend="eager", reuse="shared.jsonl", version="1")
    keys = []
    for name, width, seed in (("a", 4, 0), ("b", 4, 0), ("c", 8, 0), ("d", 4, 1)):
        torch.manual_seed(seed)
        kept = kept_model(nn.Sequential(nn.ReLU(), nn.Linear(width, 4)), torch.ones(2, width), tmp_path / name)
        requests = kept.requests(settings, runs_code=False)
        keys.append({unit.id: requests.for_unit(unit).reuse_key for unit in kept.plan.units.values()})

    assert keys[0] == keys[1]
    assert keys[0]["mod_002_1"] != keys[2]["mod_002_1"]
    assert keys[0]["mod_002_1"] != keys[3]["mod_002_1"]  # other weights
    assert keys[0]["mod_001_0"] == keys[3]["mod_001_0"]  # which this one does not read


def test_another_version_of_the_backend_is_another_key(tmp_path: Path) -> None:
    kept = kept_model(nn.ReLU(), torch.ones(2), tmp_path)
    unit = kept.plan.units["mod_000_root"]

    keys = {
        kept.requests(Settings(backend="eager", reuse="x", version=version)).for_unit(unit).reuse_key
        for version in ("1", "2")
    }

    assert len(keys) == 2


def test_nothing_is_shared_unless_asked(tmp_path: Path) -> None:
    kept = kept_model(nn.ReLU(), torch.ones(2), tmp_path)

    assert kept.requests(faulty()).for_unit(kept.plan.units["mod_000_root"]).reuse_key == ""

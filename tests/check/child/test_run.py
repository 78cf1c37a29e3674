import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.capture.nets import CachedStack, Feed, Stack, cache
from tests.check.held import Kept, faulty, kept_model
from torchstone.backends.eager import Eager
from torchstone.backends.protocol import NotRun
from torchstone.check.child.run import export_unit, run_module, run_on_tensors, run_program
from torchstone.check.settings import Settings


class Random(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, training=True)


class Remembers(nn.Module):
    """Its result depends on what it did before."""

    def __init__(self) -> None:
        super().__init__()
        self.total = [0.0]

    def forward(self, x: Tensor) -> Tensor:
        self.total[0] += 1
        return x + self.total[0]


def asked(kept: Kept, settings: Settings, unit: str = "mod_000_root", **changes: Any) -> dict[str, Any]:
    request = kept.requests(settings).for_unit(kept.plan.units[unit])
    return {**request.task.payload, **changes}


def test_a_right_backend_passes_with_the_numbers_to_prove_it(tmp_path: Path) -> None:
    kept = kept_model(Stack(Feed()), torch.randn(2, 8), tmp_path)

    answer = run_module(asked(kept, faulty()))

    assert answer["outcome"] == "passed"
    assert answer["numbers"]["equal"]
    assert (answer["numbers"]["state"], answer["numbers"]["noise_multiple"]) == ("passed", 0.0)


@pytest.mark.parametrize(
    ("fault", "outcome", "words"),
    [
        ("wrong", "wrong", "times what float32 explains"),
        ("scaled", "wrong", "times what float32 explains"),
        ("nan", "wrong", "NaN"),
        ("unsupported", "unsupported", "no rule for aten.leaky_relu"),
        ("compile_error", "compile error", "internal compiler error"),
        ("raise", "raised", "the device reported an error"),
    ],
)
def test_each_fault_has_its_outcome(tmp_path: Path, fault: str, outcome: str, words: str) -> None:
    kept = kept_model(nn.LeakyReLU(), torch.randn(2, 8), tmp_path)

    answer = run_module(asked(kept, faulty({"fault": fault, "op": "aten.leaky_relu.default"})))

    assert answer["outcome"] == outcome
    assert words in answer["reason"]
    json.dumps(answer, allow_nan=False)


def test_a_backend_that_only_compiles_gives_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiles_only(*_: Any) -> Any:
        msg = "there is no device to run it on"
        raise NotRun(msg)

    monkeypatch.setattr(Eager, "compile", compiles_only)
    kept = kept_model(nn.LeakyReLU(), torch.randn(2, 8), tmp_path)

    answer = run_module(asked(kept, Settings(backend="eager")))

    assert (answer["outcome"], answer["reason"]) == ("not run", "there is no device to run it on")


def test_a_module_that_takes_a_cache_runs_with_the_recorded_one(tmp_path: Path) -> None:
    kept = kept_model(CachedStack(2), {"x": torch.ones(1, 2, 8), "past": cache(2)}, tmp_path)

    assert [run_module(asked(kept, faulty(), unit))["outcome"] for unit in kept.plan.units] == ["passed"] * len(
        kept.plan.units
    )


def test_random_numbers_are_drawn_as_in_the_recorded_run(tmp_path: Path) -> None:
    kept = kept_model(Random(), torch.ones(64), tmp_path)

    assert run_module(asked(kept, faulty()))["outcome"] == "passed"


def test_the_backend_is_not_blamed_for_what_eager_does_not_do_again(tmp_path: Path) -> None:
    model = Remembers()
    kept = kept_model(model, torch.ones(3), tmp_path)
    model.total[0] = 100.0

    answer = run_module(asked(kept, faulty()))

    assert answer["outcome"] == "not run"
    assert "eager itself does not give the recorded outputs again" in answer["reason"]


def test_recorded_ops_run_instead_of_the_code(tmp_path: Path) -> None:
    kept = kept_model(Stack(Feed()), torch.randn(2, 8), tmp_path)
    unit = kept.plan.units["mod_000_root"]

    request = kept.requests(faulty(), runs_code=False).for_unit(unit)

    assert request.task.entry.endswith("run_program")
    assert run_program(request.task.payload)["outcome"] == "passed"


def test_a_module_that_calls_no_op_has_nothing_to_fail_with(tmp_path: Path) -> None:
    kept = kept_model(nn.Sequential(nn.Dropout(), nn.Tanh()).eval(), torch.randn(2), tmp_path)
    unit = next(unit for unit in kept.plan.units.values() if unit.row == 1)
    request = kept.requests(faulty({"fault": "raise"}), runs_code=False).for_unit(unit)

    assert run_program(request.task.payload) == {"outcome": "passed", "notes": ["it calls no op"]}


def test_an_op_runs_with_the_values_it_had(tmp_path: Path) -> None:
    kept = kept_model(Stack(Feed()), torch.randn(2, 8), tmp_path)
    settings = faulty({"fault": "wrong", "op": "aten.leaky_relu.default"})
    requests = kept.requests(settings)
    steps = requests.program(0).steps

    outcomes = {
        step.op: run_program(requests.for_steps("op", 0, [place]).task.payload)["outcome"]
        for place, step in enumerate(steps)
        if step.stands_alone
    }

    assert {op for op, outcome in outcomes.items() if outcome == "wrong"} == {"aten.leaky_relu.default"}


def test_an_op_that_eager_refuses_is_not_judged() -> None:
    program = {
        "inputs": ["i0"],
        "constants": [],
        "steps": [{"op": "aten.view.default", "args": [{"tensor": "i0"}, [7]], "kwargs": {}, "outputs": ["t0"]}],
        "outputs": [{"tensor": "t0"}],
    }

    answer = run_on_tensors(program, {"i0": torch.ones(3)}, {"backend": faulty().backend_payload, "tolerance": {}})

    assert answer["outcome"] == "not run"
    assert "eager itself raises" in answer["reason"]


def test_ir_is_written_and_named(tmp_path: Path) -> None:
    kept = kept_model(nn.ReLU(), torch.ones(3), tmp_path)

    answer = run_module(asked(kept, Settings(backend="eager", ir_of_passing=True)))

    assert (answer["outcome"], answer["irs"]) == ("passed", ["aten"])
    assert "relu" in (tmp_path / "irs" / "mod_000_root" / "aten.txt").read_text()


def test_only_ir_is_exported_when_that_is_asked(tmp_path: Path) -> None:
    kept = kept_model(nn.ReLU(), torch.ones(3), tmp_path)

    assert export_unit(asked(kept, Settings(backend="eager", ir_of_passing=True)))["irs"] == ["aten"]


def test_how_far_it_came_is_on_disk(tmp_path: Path) -> None:
    kept = kept_model(nn.ReLU(), torch.ones(3), tmp_path)
    payload = asked(kept, faulty())

    run_module(payload)

    assert Path(payload["stage_file"]).read_text() == "run"

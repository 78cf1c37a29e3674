from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from tests.capture.nets import Feed, Stack
from tests.check.held import Kept, faulty, kept_model
from tests.check.in_process import InProcess
from torchstone.backends.eager import Eager
from torchstone.backends.protocol import CompileFailed, Run
from torchstone.check.localize import Search
from torchstone.check.runner import Runner
from torchstone.check.settings import Granularity, Settings
from torchstone.check.unit_graphs import named_places
from torchstone.record.check import Blame


class Fused(nn.Module):
    """Five ops in a row."""

    def forward(self, x: Tensor) -> Tensor:
        return x.neg().exp().sin().abs().sqrt()


def searched(kept: Kept, settings: Settings) -> Search:
    with Runner(InProcess(), kept.folder.journal) as runner:
        search = Search(kept.trace, kept.plan, kept.requests(settings), runner, settings)
        search.run()
    return search


def blamed(search: Search) -> dict[str, tuple[str, Blame, bool]]:
    return {" + ".join(search.ops_of(one)): (one.module, one.blame, one.proven) for one in search.causes}


def test_a_model_that_works_takes_one_run(tmp_path: Path) -> None:
    search = searched(kept_model(Stack(Feed(), Feed()), torch.randn(2, 8), tmp_path), faulty())

    assert list(search.results) == ["mod_000_root"]
    assert search.causes == []


def test_the_op_is_found_in_the_module_that_calls_it(tmp_path: Path) -> None:
    kept = kept_model(Stack(Feed(), Feed()), torch.randn(2, 8), tmp_path)

    search = searched(kept, faulty({"fault": "wrong", "op": "aten.leaky_relu.default"}))

    assert blamed(search) == {"aten.leaky_relu.default": ("mod_002_0", Blame.OP, True)}


def test_an_op_configuration_runs_once_however_often_it_is_called(tmp_path: Path) -> None:
    model = nn.Sequential(Feed(slope=0.1), Feed(slope=0.1), nn.Tanh())
    kept = kept_model(model, torch.randn(2, 8), tmp_path)

    search = searched(kept, faulty({"fault": "wrong", "op": "aten.leaky_relu.default"}))

    assert len(search.ops) == 1


def test_ops_that_fail_only_together_are_found(tmp_path: Path) -> None:
    kept = kept_model(Fused(), torch.randn(8), tmp_path)

    search = searched(kept, faulty({"fault": "wrong", "op": "aten.sin.default", "after": "aten.exp.default"}))

    assert blamed(search) == {"aten.exp.default + aten.sin.default": ("mod_000_root", Blame.OPS_TOGETHER, True)}


class Hides(nn.Module):
    """A part that counts little beside the rest."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.part = Feed()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        return x + self.share * self.part(x)


@pytest.mark.heavy
def test_what_passes_with_a_suspicious_error_is_walked_on(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    for number in range(15):  # until the error of the part is two to three times the noise of the whole
        kept = kept_model(Hides(3e-7 * 1.2**number), x, tmp_path / str(number))
        search = searched(kept, faulty({"fault": "scaled", "op": "aten.leaky_relu.default"}))
        if search.results["mod_000_root"].suspicious:
            break

    assert search.results["mod_000_root"].suspicious
    assert blamed(search) == {"aten.leaky_relu.default": ("mod_001_part", Blame.OP, True)}
    assert search.top_passes


class Repeats(nn.Module):
    """The same ops in two modules, with other shapes and with others before them in the second one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Fused()
        self.second = nn.Sequential(nn.Tanh(), Fused())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(x), self.second(x[:4])


def test_ops_that_fail_together_in_one_module_are_tried_first_in_the_next(tmp_path: Path) -> None:
    kept = kept_model(Repeats(), torch.randn(8), tmp_path)
    fault = {"fault": "wrong", "op": "aten.sin.default", "after": "aten.exp.default"}

    with Runner(executor := InProcess(), kept.folder.journal) as runner:
        search = Search(kept.trace, kept.plan, kept.requests(faulty(fault)), runner, faulty(fault))
        search.run()

    groups = [task.id for task in executor.tasks if task.id.startswith("only:")]
    first, second = search.causes
    assert [first.blame, second.blame] == [Blame.OPS_TOGETHER] * 2
    assert [group for group in groups if group.startswith(f"only:{second.unit}:")] == [
        f"only:{second.unit}:0..4",
        f"only:{second.unit}:1..2",
    ]


class RefusesCode(Eager):
    """Cannot take a module of more than one op, and says so in other words where it is recorded ops."""

    def compile(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
        if isinstance(module, fx.GraphModule) and len(module.graph.nodes) == 3:
            return super().compile(module, args, kwargs)
        msg = "recorded ops" if isinstance(module, fx.GraphModule) else "code"
        raise CompileFailed(msg)


def test_recorded_ops_that_fail_in_another_way_are_not_blamed(tmp_path: Path) -> None:
    search = searched(kept_model(Fused(), torch.randn(8), tmp_path), Settings(backend=f"{__file__}::RefusesCode"))

    (cause,) = search.causes
    assert (cause.blame, cause.result.reason) == (Blame.MODULE, "code")
    assert cause.note == "its ops fail in another way: recorded ops"


def test_a_module_fails_without_its_ops_when_the_fault_is_in_its_code(tmp_path: Path) -> None:
    kept = kept_model(Stack(Feed()), torch.randn(2, 8), tmp_path)

    search = searched(kept, faulty({"fault": "wrong", "op": "*leaky_relu*", "module": "Feed"}))

    (cause,) = search.causes
    assert (cause.blame, cause.module) == (Blame.MODULE, "mod_002_0")
    assert "its ops pass as one graph" in cause.note


@pytest.mark.parametrize(
    ("how", "units", "ops"),
    [
        ({"granularity": Granularity.MODULE}, {"mod_000_root", "mod_002_0", "mod_003_up", "mod_004_down"}, 0),
        ({"max_depth": 0}, {"mod_000_root"}, 1),
        ({"only": "layers.0.up"}, {"mod_003_up"}, 0),
    ],
)
def test_limits_are_kept(tmp_path: Path, how: dict[str, Any], units: set[str], ops: int) -> None:
    kept = kept_model(Stack(Feed()), torch.randn(2, 8), tmp_path)

    search = searched(kept, faulty({"fault": "wrong", "op": "aten.leaky_relu.default"}, **how))

    assert set(search.results) == units
    assert len(search.ops) == ops


def test_with_modules_only_the_deepest_one_is_to_blame(tmp_path: Path) -> None:
    kept = kept_model(Stack(Feed()), torch.randn(2, 8), tmp_path)
    fault = {"fault": "wrong", "op": "aten.leaky_relu.default"}

    search = searched(kept, faulty(fault, granularity=Granularity.MODULE))

    assert [(one.module, one.blame) for one in search.causes] == [("mod_002_0", Blame.MODULE)]


def test_places_have_a_short_name() -> None:
    assert named_places([3, 4, 5, 9]) == "3..5-9"
    assert named_places([7]) == "7"

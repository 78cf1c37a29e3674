from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.capture.nets import Feed, Stack
from tests.check.held import Kept, faulty, kept_model
from tests.check.in_process import InProcess
from torchstone.check.asking import Asking
from torchstone.check.searching import Search, named_places
from torchstone.check.settings import Granularity, Settings
from torchstone.record.check import Blame


class Fused(nn.Module):
    """Five ops in a row."""

    def forward(self, x: Tensor) -> Tensor:
        return x.neg().exp().sin().abs().sqrt()


def searched(kept: Kept, settings: Settings) -> Search:
    with Asking(InProcess(), kept.folder.journal) as asking:
        search = Search(kept.trace, kept.plan, kept.questions(settings), asking, settings)
        search.run()
    return search


def blamed(search: Search, kept: Kept) -> dict[str, tuple[str, Blame]]:
    program = kept.questions(faulty()).program
    return {
        " + ".join(program(one.row).steps[place].op for place in one.places): (one.module, one.blame)
        for one in search.culprits
    }


def test_a_model_that_works_takes_one_run(tmp_path: Path) -> None:
    search = searched(kept_model(Stack(Feed(), Feed()), torch.randn(2, 8), tmp_path), faulty())

    assert list(search.results) == ["mod_000_root"]
    assert search.culprits == []


def test_the_op_is_found_in_the_module_that_calls_it(tmp_path: Path) -> None:
    kept = kept_model(Stack(Feed(), Feed()), torch.randn(2, 8), tmp_path)

    search = searched(kept, faulty({"fault": "wrong", "op": "aten.leaky_relu.default"}))

    assert blamed(search, kept) == {"aten.leaky_relu.default": ("mod_002_0", Blame.OP)}


def test_an_op_configuration_runs_once_however_often_it_is_called(tmp_path: Path) -> None:
    model = nn.Sequential(Feed(slope=0.1), Feed(slope=0.1), nn.Tanh())
    kept = kept_model(model, torch.randn(2, 8), tmp_path)

    search = searched(kept, faulty({"fault": "wrong", "op": "aten.leaky_relu.default"}))

    assert len(search.ops) == 1


def test_ops_that_fail_only_together_are_found(tmp_path: Path) -> None:
    kept = kept_model(Fused(), torch.randn(8), tmp_path)

    search = searched(kept, faulty({"fault": "wrong", "op": "aten.sin.default", "after": "aten.exp.default"}))

    assert blamed(search, kept) == {"aten.exp.default + aten.sin.default": ("mod_000_root", Blame.OPS_TOGETHER)}


def test_a_module_fails_without_its_ops_when_the_fault_is_in_its_code(tmp_path: Path) -> None:
    kept = kept_model(Stack(Feed()), torch.randn(2, 8), tmp_path)

    search = searched(kept, faulty({"fault": "wrong", "op": "*leaky_relu*", "module": "Feed"}))

    (culprit,) = search.culprits
    assert (culprit.blame, culprit.module) == (Blame.MODULE, "mod_002_0")
    assert "recorded ops pass" in culprit.note


@pytest.mark.parametrize(
    ("how", "units", "ops"),
    [
        ({"granularity": Granularity.MODULE}, {"mod_000_root", "mod_002_0", "mod_003_up", "mod_004_down"}, 0),
        ({"max_depth": 0}, {"mod_000_root"}, 5),
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

    assert [(one.module, one.blame) for one in search.culprits] == [("mod_002_0", Blame.MODULE)]


def test_places_have_a_short_name() -> None:
    assert named_places([3, 4, 5, 9]) == "3..5-9"
    assert named_places([7]) == "7"

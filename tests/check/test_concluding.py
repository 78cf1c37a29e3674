from pathlib import Path

import torch
from torch import Tensor, nn

from tests.capture.nets import Feed, Stack
from tests.check.held import Kept, faulty, kept_model
from tests.check.in_process import InProcess
from torchstone.check.findings import Conclusion
from torchstone.check.localize import Search
from torchstone.check.repro import Repro
from torchstone.check.runner import Runner
from torchstone.check.settings import Settings
from torchstone.record.check import Blame


class Twice(nn.Module):
    """The same op in two modules of different classes, and once in a third that works by another shape."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Feed(slope=0.1)
        self.second = nn.Sequential(Feed(slope=0.1))
        self.wide = Feed(16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x))
        return self.wide(torch.cat([x, x], dim=-1))


def concluded(kept: Kept, settings: Settings, flops: int | None = 10) -> Conclusion:
    requests = kept.requests(settings)
    with Runner(InProcess(), kept.folder.journal) as runner:
        search = Search(kept.trace, kept.plan, requests, runner, settings)
        search.run()
    prices = None if flops is None else [flops] * len(kept.trace.ops.signatures)
    return Conclusion(kept.trace, kept.plan, search, requests, prices)


def test_an_op_of_several_modules_is_one_finding_with_all_its_calls(tmp_path: Path) -> None:
    kept = kept_model(Twice(), torch.randn(2, 8), tmp_path)
    fault = {"fault": "wrong", "op": "aten.leaky_relu.default", "shape": [2, 16]}

    conclusion = concluded(kept, faulty(fault))

    (one,) = conclusion.weighted()
    assert (one.ops, one.calls, one.flops) == (("aten.leaky_relu.default",), 2, 20)
    (found,) = conclusion.findings([one], [Repro(file="repros/001.py", confirmed=True)])
    assert (found.blame, found.module_path, found.repro) == (Blame.OP, "first", "repros/001.py")


def test_statuses_are_those_of_the_walk(tmp_path: Path) -> None:
    kept = kept_model(Twice(), torch.randn(2, 8), tmp_path)
    fault = {"fault": "wrong", "op": "aten.leaky_relu.default", "shape": [2, 16]}

    modules = {module.module_path: module for module in concluded(kept, faulty(fault)).modules(())}

    statuses = {path: module.status for path, module in modules.items()}
    assert statuses == {
        "": "failed",
        "first": "failed",
        "first.up": "success",
        "first.down": "success",
        "second": "skipped",
        "wide": "success",
        "wide.up": "inherited_success",
        "wide.down": "inherited_success",
    }
    assert modules["second"].children_status == "failed"
    assert modules["second"].reason == "a container: what it holds was run"
    assert modules["first"].occurrences == ("first", "second.0")
    assert modules["first"].numbers is not None


def test_the_totals_add_up(tmp_path: Path) -> None:
    kept = kept_model(Twice(), torch.randn(2, 8), tmp_path)
    fault = {"fault": "wrong", "op": "aten.leaky_relu.default", "shape": [2, 16]}

    conclusion = concluded(kept, faulty(fault))
    totals = conclusion.totals(conclusion.weighted())

    assert totals.op_calls == len(kept.trace.ops)
    assert totals.working_calls == totals.op_calls - 2
    assert totals.working_flops == 10 * totals.working_calls
    assert totals.unknown_calls == 0


def test_a_module_that_fails_for_an_unknown_reason_is_not_counted_as_working(tmp_path: Path) -> None:
    kept = kept_model(Stack(Feed(), Feed()), torch.randn(2, 8), tmp_path)

    conclusion = concluded(kept, faulty({"fault": "wrong", "op": "*leaky_relu*", "module": "Feed"}))

    assert conclusion.totals(conclusion.weighted()).unknown_calls == len(kept.trace.ops)
    assert conclusion.totals(conclusion.weighted()).working_calls == 0


def test_without_prices_flops_are_unknown_not_zero(tmp_path: Path) -> None:
    kept = kept_model(nn.ReLU(), torch.randn(4), tmp_path)

    conclusion = concluded(kept, faulty({"fault": "wrong"}), flops=None)

    assert conclusion.weighted()[0].flops is None
    assert conclusion.totals(conclusion.weighted()).flops is None
    assert conclusion.modules(())[0].flops is None


def test_every_op_that_ran_is_told(tmp_path: Path) -> None:
    kept = kept_model(nn.ReLU(), torch.randn(4), tmp_path)

    (op,) = concluded(kept, faulty({"fault": "nan"})).ops()

    assert (op.op, op.arguments, op.output, op.calls) == ("aten.relu.default", "float32[4]", "float32[4]", 1)


def test_the_weightiest_comes_first(tmp_path: Path) -> None:
    model = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Tanh(), nn.Tanh())
    kept = kept_model(model, torch.randn(4), tmp_path)
    faults = ({"fault": "wrong", "op": "aten.relu.default"}, {"fault": "nan", "op": "aten.tanh.default"})

    weighted = concluded(kept, faulty(*faults)).weighted()

    assert [one.ops for one in weighted] == [("aten.tanh.default",), ("aten.relu.default",)]

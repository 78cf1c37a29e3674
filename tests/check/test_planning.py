import pytest
import torch
from torch import Tensor, nn

from tests.capture.nets import Feed, Stack
from torchstone.capture.capture_model import capture
from torchstone.check.plan import plan, roots_of
from torchstone.errors import InputError
from torchstone.record.trace import Trace


class CalledTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x)[:1] + self.act(x[:1])


class Flagged(nn.Module):
    def forward(self, x: Tensor, *, twice: bool) -> Tensor:
        return x + x if twice else x


class CallsWithFlags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Flagged()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, twice=True) + self.inner(x, twice=False) + self.inner(x, twice=True)


class Borrows(nn.Module):
    """Calls a module that hangs elsewhere."""

    def __init__(self, lent: nn.Module) -> None:
        super().__init__()
        self._lent = [lent]

    def forward(self, x: Tensor) -> Tensor:
        return self._lent[0](x)


class Lends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Linear(4, 4)
        self.borrower = Borrows(self.own)

    def forward(self, x: Tensor) -> Tensor:
        return self.borrower(x)


def traced(model: nn.Module, *shape: int) -> Trace:
    return capture(model, torch.zeros(shape), "cpu", reuse=False)


def test_equal_modules_are_one_unit() -> None:
    found = plan(traced(Stack(Feed(), Feed(), Feed()), 2, 8))

    layers = [unit for unit in found.units.values() if unit.inputs == ("float32[2, 8]",) and unit.calls == 3]
    assert {unit.module for unit in layers} == {"mod_002_0", "mod_003_up"}


def test_a_module_called_with_two_shapes_is_two_units() -> None:
    found = plan(traced(CalledTwice(), 3, 4))

    assert found.nodes["mod_001_act"].units == ("mod_001_act", "mod_001_act@2")
    assert found.units["mod_001_act"].inputs == ("float32[3, 4]",)
    assert found.units["mod_001_act@2"].inputs == ("float32[1, 4]",)


def test_a_flag_makes_another_kind_of_call() -> None:
    found = plan(traced(CallsWithFlags(), 3))

    assert [(unit.id, unit.calls) for unit in found.units.values() if unit.module == "mod_001_inner"] == [
        ("mod_001_inner", 2),
        ("mod_001_inner@2", 1),
    ]


def test_a_list_of_modules_is_passed_over_and_a_root_never() -> None:
    stacked = plan(traced(Stack(Feed()), 2, 8))
    sequence = plan(traced(nn.Sequential(nn.ReLU()), 2, 8))

    assert stacked.nodes["mod_001_layers"].units == ()
    assert sequence.nodes[sequence.root].units == (sequence.root,)


def test_a_module_that_hangs_elsewhere_is_a_child_of_who_calls_it() -> None:
    found = plan(traced(Lends(), 2, 4))

    assert "mod_001_own" in found.nodes["mod_002_borrower"].children


def test_a_module_that_is_never_called_has_no_unit() -> None:
    model = Stack(Feed())
    model.unused = nn.Linear(3, 3)

    found = plan(traced(model, 2, 8))

    unused = next(module.id for module in found.unique if module.module_path == "unused")
    assert found.nodes[unused].units == ()


@pytest.mark.parametrize("pattern", ["layers.0", "Feed", "*.Feed", "layers.*"])
def test_a_pattern_means_paths_and_classes(pattern: str) -> None:
    found = plan(traced(Stack(Feed()), 2, 8))

    assert "mod_002_0" in roots_of(found, pattern)


def test_without_a_pattern_the_walk_begins_at_the_root() -> None:
    found = plan(traced(Stack(Feed()), 2, 8))

    assert roots_of(found, "") == (found.root,)


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    found = plan(traced(Stack(Feed()), 2, 8))

    with pytest.raises(InputError, match="matches no module"):
        roots_of(found, "nothing.*")

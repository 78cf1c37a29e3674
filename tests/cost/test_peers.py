import pytest
import torch
from torch import nn

from torchstone.cost.peers import COUNTERS, chosen_counters, count_with, positional
from torchstone.errors import InputError

MODEL = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
INPUTS = (torch.ones(2, 8),)
FLOPS = 2 * 2 * (8 * 16 + 16 * 4)


def test_torch_counts_its_own_way_and_tells_ops_apart() -> None:
    found = count_with("flop_counter", MODEL, INPUTS, {})
    assert (found.total_flops, found.by_op, found.error) == (FLOPS, {"aten.addmm": FLOPS}, "")


@pytest.mark.parametrize("name", [name for name in COUNTERS if name != "flop_counter"])
def test_a_counter_that_is_there_counts_and_one_that_is_not_says_so(name: str) -> None:
    found = count_with(name, MODEL, INPUTS, {})
    assert found.error.startswith("not installed") or found.total_flops in range(FLOPS, FLOPS + 200)


class Tuple(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x, 1


@pytest.mark.parametrize("model", [nn.Identity(), Tuple()])
def test_counters_that_know_positions_only_get_one_tensor_back(model: nn.Module) -> None:
    assert positional(model, {})(INPUTS[0]) is INPUTS[0]


def test_a_counter_that_fails_is_a_result() -> None:
    found = count_with("flop_counter", nn.Linear(3, 3), INPUTS, {})
    assert found.total_flops is None
    assert found.error.startswith("RuntimeError: mat1 and mat2 shapes")


def test_counters_are_chosen_by_name_or_all() -> None:
    assert chosen_counters("fvcore, thop") == ("fvcore", "thop")
    assert chosen_counters("all") == tuple(COUNTERS)
    with pytest.raises(InputError, match="unknown counter 'abacus'"):
        chosen_counters("abacus")

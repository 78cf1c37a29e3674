import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tests.cost.calls import cost_of, trace_of
from torchstone.cost import price
from torchstone.cost.peers import COUNTERS, chosen_counters, count_with, differences, inferred, positional
from torchstone.errors import InputError
from torchstone.record.cost import Conventions

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


def lines(x: Tensor) -> Tensor:
    return scaled_dot_product_attention(x, x, x) @ torch.ones(4, 4)


TABLE = cost_of(lines, torch.ones(1, 2, 8, 4))
ATTENTION = 2 * 2 * 8 * 8 * 8
MATMUL = 2 * 16 * 4 * 4


def test_equal_counts_are_no_difference() -> None:
    kernel = "aten._scaled_dot_product_flash_attention_for_cpu"
    assert differences(TABLE, {kernel: ATTENTION, "aten.bmm": MATMUL}, {}) == ()


def test_what_is_not_counted_is_named_with_whether_it_was_said() -> None:
    (silent,) = differences(TABLE, {"aten.bmm": MATMUL}, {})
    assert (silent.ours, silent.theirs, silent.reason) == (ATTENTION, 0, "not counted, and it does not say so")
    (told,) = differences(TABLE, {"aten.bmm": MATMUL}, {"aten::scaled_dot_product_attention": 1})
    assert told.reason == "not counted, and it says so"


def test_other_names_for_the_same_op_are_taken_together() -> None:
    table = cost_of(nn.Linear(4, 4), torch.ones(2, 4))
    assert differences(table, {"linear": 64}, {}) == ()


def test_factors_of_two_are_recognised() -> None:
    table = cost_of(nn.Linear(4, 4), torch.ones(2, 4))
    assert differences(table, {"addmm": 32}, {})[0].reason == "half: it counts multiply-adds"
    assert differences(table, {"addmm": 128}, {})[0].reason == "double"
    assert differences(table, {"addmm": 65}, {})[0].reason == "counted otherwise"


def test_arithmetic_that_is_no_matmul_is_told_apart() -> None:
    table = cost_of(nn.LayerNorm(4), torch.ones(2, 4))
    assert differences(table, {"layer_norm": 40}, {})[0].reason.startswith("counted there as arithmetic")


def test_multiply_adds_counted_once_are_no_difference() -> None:
    trace = trace_of(nn.Linear(4, 4), torch.ones(2, 4))
    assert differences(price(trace, Conventions(multiply_add=1)), {"addmm": 64}, {}) == ()


def test_a_total_alone_tells_what_was_left_out() -> None:
    kernel = "_scaled_dot_product_flash_attention_for_cpu"
    assert inferred(TABLE, MATMUL) == f"tells no ops; its total equals that of all matmuls but {kernel} ({ATTENTION:,})"
    assert inferred(TABLE, MATMUL + ATTENTION + 5).endswith("all matmuls, and 5 FLOPs of other arithmetic")
    assert inferred(TABLE, MATMUL + 7).endswith(f"{kernel} ({ATTENTION:,}), and 7 FLOPs of other arithmetic")


def test_a_total_that_no_choice_gives_is_said_to_be_another_way_of_counting() -> None:
    table = cost_of(nn.Linear(4, 4), torch.ones(2, 4))
    assert "no choice of ops gives its total" in inferred(table, 65 + 8)


def test_a_total_that_counts_no_op_of_ours_is_not_explained_away() -> None:
    assert "no choice of ops gives its total" in inferred(TABLE, 3)

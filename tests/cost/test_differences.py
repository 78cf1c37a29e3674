import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tests.cost.calls import cost_of, trace_of
from torchstone.cost import price
from torchstone.cost.peers import differences, inferred
from torchstone.record.cost import Conventions


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

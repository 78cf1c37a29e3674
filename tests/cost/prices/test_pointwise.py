import pytest
import torch
from torch import Tensor, nn
from torch.func import jvp
from torch.nn import functional as F  # noqa: N812 - its usual name

from tests.cost.calls import cost_of, flops_of, spec
from torchstone.cost.prices.pointwise import FLOPS_PER_ELEMENT

X = torch.ones(4, 6)


def test_each_elementary_function_is_one_per_element() -> None:
    for function in (torch.add, torch.mul, torch.div, torch.maximum):
        assert flops_of(function, X, X) == 24
    for of_one in (torch.exp, torch.rsqrt, torch.tanh, torch.neg, torch.relu, torch.sin):
        assert flops_of(of_one, X) == 24


def test_the_result_is_counted_where_inputs_are_broadcast() -> None:
    assert flops_of(torch.add, torch.ones(4, 1), torch.ones(6)) == 24


def test_in_place_costs_what_the_functional_twin_does() -> None:
    assert flops_of(lambda one: one.clone().mul_(2), X) == flops_of(lambda one: one * 2, X)


def test_a_factor_before_the_second_operand_is_one_more() -> None:
    assert flops_of(lambda one: torch.add(one, one, alpha=3), X) == 48


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x * 0.7071))


def gelu_by_tanh(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.tanh(0.7979 * (x + 0.0447 * (x * x * x))))


@pytest.mark.parametrize(
    ("fused", "written_out"),
    [
        (F.silu, silu),
        (F.gelu, gelu),
        (torch.sigmoid, lambda x: torch.reciprocal(1 + torch.exp(-x))),
        (F.glu, lambda x: x[..., :3] * torch.sigmoid(x[..., 3:])),
        (F.hardtanh, lambda x: torch.minimum(torch.maximum(x, x), x)),
        (lambda x: torch.lerp(x, x, 0.3), lambda x: x + 0.3 * (x - x)),
    ],
)
def test_a_composed_function_costs_the_sum_of_its_parts(fused: object, written_out: object) -> None:
    assert callable(fused)
    assert callable(written_out)
    assert flops_of(fused, X) == flops_of(written_out, X)


def test_gelu_by_tanh_costs_nine() -> None:
    assert flops_of(lambda x: F.gelu(x, approximate="tanh"), X) == 9 * 24
    assert flops_of(gelu_by_tanh, X) == 9 * 24


def test_selecting_is_free_but_moves_bytes() -> None:
    totals = cost_of(lambda x: torch.where(x > 0, x, x), X).totals
    assert totals.flops == 24  # the comparison
    assert totals.bytes_read == 24 * 4 + 24 * (1 + 4 + 4)
    assert totals.bytes_written == 24 * (1 + 4)


def test_rounding_after_a_division_is_one_more() -> None:
    assert flops_of(lambda x: torch.div(x, x, rounding_mode="floor"), X) == 48
    assert flops_of(lambda x: torch.div(x, x, rounding_mode=None), X) == 24


def test_each_element_is_compared_with_each_test_element() -> None:
    assert flops_of(lambda x: torch.isin(x, torch.arange(5.0)), X) == 24 * 5 + 2 * 5


def test_complex_products_cost_six() -> None:
    assert flops_of(lambda x: x * x, X.to(torch.complex64)) == 6 * 24


def test_the_backward_of_glu_is_counted_per_gradient() -> None:
    both = cost_of(F.glu, torch.ones(4, 6, requires_grad=True), backward=True).totals.flops
    assert both == 5 * 12 + 8 * 12


def test_no_price_is_negative_and_every_name_is_an_op_of_torch() -> None:
    assert all(price >= 0 for price in FLOPS_PER_ELEMENT.values())
    unknown = [name for name in FLOPS_PER_ELEMENT if not hasattr(torch.ops.aten, name)]
    assert unknown == []


def test_an_expanded_input_is_read_once() -> None:
    totals = cost_of(lambda x: x.expand(100, 6) + 1, torch.ones(1, 6)).totals
    assert (totals.bytes_read, totals.bytes_written) == (6 * 4, 600 * 4)
    assert spec(1, 6).size_bytes == 24


def test_division_that_rounds_costs_two_in_place_as_well() -> None:
    given = torch.ones(4, 8)
    assert flops_of(lambda x: x.div_(2.0, rounding_mode="floor"), given) == 2 * 32
    assert flops_of(lambda x: torch.div(x, 2.0, rounding_mode="trunc"), given) == 2 * 32


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # by torch itself
def test_ops_of_forward_mode_derivatives_have_prices() -> None:
    weight, given = torch.ones(3, 5), torch.ones(5)

    def tangent(x: Tensor) -> Tensor:
        made: Tensor = jvp(lambda y: nn.functional.linear(y, weight, weight[:, 0]), (x,), (x,))[1]
        return made

    assert any(row.op == "prims.add.default" for row in cost_of(tangent, given, mode="cpu").ops)

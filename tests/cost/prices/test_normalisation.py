import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from tests.cost.calls import cost_of, flops_of

X = torch.ones(4, 8)


def test_layer_norm_costs_seven_with_scale_and_shift_and_five_without() -> None:
    assert flops_of(nn.LayerNorm(8), X) == 7 * 32
    assert flops_of(nn.LayerNorm(8, elementwise_affine=False), X) == 5 * 32


def test_group_norm_costs_what_layer_norm_does() -> None:
    assert flops_of(nn.GroupNorm(2, 8), X) == 7 * 32


def test_batch_norm_uses_its_running_statistics_outside_training() -> None:
    layer = nn.BatchNorm1d(8)
    assert flops_of(layer.eval(), X) == 4 * 32
    assert flops_of(layer.train(), X) == 7 * 32 + 1  # and counts its batches


def test_softmax_costs_five_like_its_steps() -> None:
    def steps(x: Tensor) -> Tensor:
        shifted = torch.exp(x - torch.amax(x, -1, keepdim=True))
        return shifted / torch.sum(shifted, -1, keepdim=True)

    assert flops_of(lambda x: F.softmax(x, -1), X) == flops_of(steps, X) == 5 * 32
    assert flops_of(lambda x: F.log_softmax(x, -1), X) == 5 * 32


def test_rms_norm_costs_four_with_a_scale() -> None:
    layer = nn.RMSNorm(8)
    assert flops_of(layer, X) in (4 * 32, 4 * 32 + 4 * 2)  # fused, or its steps with the root of each row


def test_weight_norm_costs_three_per_weight() -> None:
    layer = torch.nn.utils.parametrizations.weight_norm(nn.Linear(8, 3, bias=False))
    totals = cost_of(layer, X).totals
    assert totals.flops - totals.matmul_flops == 3 * 24


def test_backward_passes_have_prices() -> None:
    given = torch.ones(2, 8, 3, requires_grad=True)
    for function in (nn.LayerNorm(3), nn.GroupNorm(2, 8), nn.BatchNorm1d(8), nn.BatchNorm1d(8).eval(), nn.RMSNorm(3)):
        both = cost_of(function, given, backward=True).totals.flops
        assert both > 2 * flops_of(function, given)
    assert cost_of(lambda x: F.softmax(x, -1), given, backward=True).totals.flops >= 9 * 48

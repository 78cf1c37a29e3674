import torch
from torch import nn

from tests.cost.calls import cost_of, flops_of, priced, several, spec

X = torch.ones(1, 2, 8, 8)


def test_pooling_uses_each_element_of_each_window() -> None:
    assert flops_of(nn.MaxPool2d(2), X) == 2 * 16 * 4
    assert flops_of(nn.AvgPool2d(2), X) == 2 * 16 * 4
    assert flops_of(nn.AvgPool2d((2, 4)), X) == 2 * 4 * 2 * 8


def test_a_window_larger_than_the_picture_covers_only_the_picture() -> None:
    assert flops_of(nn.AvgPool2d(100, ceil_mode=True), X) == 2 * 64


def test_adaptive_pooling_uses_each_element_once() -> None:
    assert flops_of(nn.AdaptiveAvgPool2d(2), X) == 128


def test_backward_spreads_or_places_the_gradient() -> None:
    given = X.clone().requires_grad_()
    assert cost_of(nn.AvgPool2d(2), given, backward=True).totals.flops == 128 + 128
    assert cost_of(nn.MaxPool2d(2), given, backward=True).totals.flops == 128 + 32
    assert cost_of(nn.AdaptiveAvgPool2d(2), given, backward=True).totals.flops == 128 + 128


def test_adaptive_windows_that_overlap_are_counted_in_full() -> None:
    assert flops_of(nn.AdaptiveAvgPool2d(3), torch.ones(1, 1, 7, 7)) == 9 * 9  # three windows of three cover seven
    assert flops_of(nn.AdaptiveMaxPool2d((1, 8)), X) == 2 * 64
    assert flops_of(nn.AdaptiveAvgPool2d(16), X) == 2 * 256


def test_fractional_pooling_looks_at_its_window_for_each_result() -> None:
    assert priced(
        "aten.fractional_max_pool3d.default", several(spec(1, 2, 3, 3, 3)),
        self=spec(1, 2, 8, 8, 8), kernel_size=several(2, 2, 2),
    ).flops == 54 * 8  # fmt: skip
    assert flops_of(nn.FractionalMaxPool2d(2, output_size=3), X) >= 18 * 4

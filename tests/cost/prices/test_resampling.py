import pytest
import torch
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate

from tests.cost.calls import cost_of, flops_of

X = torch.ones(1, 2, 8, 8)


def resized(mode: str, *, smooth: bool = False) -> object:
    def resize(x: Tensor) -> Tensor:
        return interpolate(x, scale_factor=2, mode=mode, antialias=smooth)

    return resize


@pytest.mark.parametrize(("mode", "taps"), [("nearest", 0), ("bilinear", 4), ("bicubic", 16)])
def test_a_multiply_add_per_pixel_used(mode: str, taps: int) -> None:
    function = resized(mode)
    assert callable(function)
    assert flops_of(function, X) == 2 * taps * 2 * 256


def test_smoothing_goes_by_rows_and_columns() -> None:
    function = resized("bilinear", smooth=True)
    assert callable(function)
    assert flops_of(function, X) == 2 * 2 * (2 * 8 * 16 + 2 * 16 * 16)


def test_sampling_finds_its_place_and_mixes_four_pixels() -> None:
    grid = torch.zeros(1, 5, 5, 2)
    assert flops_of(lambda x: grid_sample(x, grid, align_corners=False), X) == 2 * 4 * 2 * 25 + 6 * 50


def test_backward_has_a_price() -> None:
    given = X.clone().requires_grad_()
    function = resized("bilinear")
    assert callable(function)
    assert cost_of(function, given, backward=True).totals.flops == 2 * 2 * 4 * 2 * 256
    grid = torch.zeros(1, 5, 5, 2)
    sampled = cost_of(lambda x: grid_sample(x, grid, align_corners=False), given, backward=True).totals
    assert sampled.flops == 3 * (2 * 4 * 2 * 25 + 6 * 50)


def test_an_affine_grid_is_a_small_product_per_point() -> None:
    found = flops_of(
        lambda t: torch.nn.functional.affine_grid(t, [1, 1, 4, 4], align_corners=False), torch.ones(1, 2, 3)
    )
    assert found >= 2 * 16 * 2 * 3


def test_shrinking_widens_the_kernel_forward_and_backward() -> None:
    given = torch.ones(1, 1, 8, 8, requires_grad=True)

    def shrink(x: Tensor) -> Tensor:
        return interpolate(x, size=(2, 4), mode="bilinear", antialias=True)

    once = 2 * (8 * 4 * 4 + 2 * 4 * 8)  # rows of eight to four by 2*2 taps, then columns of eight to two by 2*4
    assert flops_of(shrink, given) == once
    assert cost_of(shrink, given, backward=True).totals.flops == 2 * once


def test_the_nearest_pixel_is_picked_and_eight_are_mixed_in_a_volume() -> None:
    flat, deep = torch.zeros(1, 5, 5, 2), torch.zeros(1, 3, 3, 3, 3)
    volume = torch.ones(1, 2, 4, 4, 4)
    assert flops_of(lambda x: grid_sample(x, flat, mode="nearest", align_corners=False), X) == 6 * 50
    assert flops_of(lambda x: grid_sample(x, deep, mode="nearest", align_corners=False), volume) == 6 * 81
    assert flops_of(lambda x: grid_sample(x, deep, align_corners=False), volume) == 2 * 8 * 54 + 6 * 81

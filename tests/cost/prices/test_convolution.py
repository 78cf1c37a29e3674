import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812 - its usual name

from tests.cost.calls import cost_of, counted_by_torch, meta, priced, spec

small = st.integers(1, 4)


@settings(max_examples=40, deadline=None)
@given(
    batch=small, groups=small, c_in=small, c_out=small, kernel=small, stride=small, padding=st.integers(0, 2),
    dilation=st.integers(1, 2), dims=st.integers(1, 3), transposed=st.booleans(),
)  # fmt: skip
def test_every_convolution_costs_what_torch_says(  # noqa: PLR0913 - each is a dimension of the property
    *, batch: int, groups: int, c_in: int, c_out: int, kernel: int, stride: int, padding: int, dilation: int,
    dims: int, transposed: bool,
) -> None:  # fmt: skip
    channels = (c_in * groups, c_out) if transposed else (c_out * groups, c_in)
    given_, weight = meta((batch, c_in * groups, *[9] * dims), (*channels, *[kernel] * dims))
    names = (
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d") if transposed else ("conv1d", "conv2d", "conv3d")
    )
    function = getattr(F, names[dims - 1])

    def convolve(*tensors: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = function(*tensors, stride=stride, padding=padding, dilation=dilation, groups=groups)
        return result

    totals = cost_of(convolve, given_, weight, mode="meta").totals
    assert totals.flops == totals.matmul_flops == counted_by_torch(convolve, given_, weight)


def test_a_bias_is_one_addition_per_result() -> None:
    layer = torch.nn.Conv2d(3, 8, 3, padding=1)
    totals = cost_of(layer, torch.ones(2, 3, 5, 5)).totals
    assert totals.flops - totals.matmul_flops == 2 * 8 * 5 * 5


def test_a_picture_without_a_batch_is_a_batch_of_one() -> None:
    alone = priced("aten.convolution.default", spec(8, 5, 5), input=spec(3, 5, 5), weight=spec(8, 3, 1, 1), bias=None)
    assert alone.matmul_flops == 2 * 8 * 3 * 25


def test_backward_costs_once_per_gradient_asked_for() -> None:
    layer = torch.nn.Conv2d(3, 8, 3)
    picture = torch.ones(2, 3, 7, 7)
    forward = cost_of(layer, picture).totals.matmul_flops
    only_weight = cost_of(layer, picture, backward=True).totals.matmul_flops
    both = cost_of(layer, picture.requires_grad_(), backward=True).totals.matmul_flops
    assert (only_weight, both) == (2 * forward, 3 * forward)


def test_a_time_first_convolution_costs_a_dot_product_per_result() -> None:
    totals = cost_of(torch.conv_tbc, torch.ones(9, 2, 3), torch.ones(4, 3, 5), torch.ones(5)).totals
    assert totals.matmul_flops == 2 * (6 * 2 * 5) * 4 * 3

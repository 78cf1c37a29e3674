"""The float64 twin of a run: the same bits in its own dtype, and values that float64 arithmetic gives."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from torchstone.numerics.expected import ExpectedOutputs
from torchstone.numerics.float64 import Float64Mode
from torchstone.numerics.pytree import named_tensors

X = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))


def twin_of(function: Callable[..., Tensor], *args: Tensor) -> tuple[Tensor, Tensor]:
    mode = Float64Mode()
    with torch.no_grad(), mode:
        result = function(*args)
    return result, mode.twin(result)


def writes_to_a_view(x: Tensor) -> Tensor:
    base = x.clone()
    base[:, 1].mul_(3).add_(0.1)
    base[..., 0] = x.sum(-1)
    return base.exp()


def writes_through_a_view_of_a_given_tensor(x: Tensor) -> Tensor:
    view = x.transpose(0, 1)
    view.add_(1 / 3)
    return x.sin()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.softmax(x @ x.transpose(1, 2), -1) @ x,
        writes_to_a_view,
        writes_through_a_view_of_a_given_tensor,
        lambda x: nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
        lambda x: torch.cat([x.tanh(), x[:1]]).var(0),
        lambda x: torch.fft.rfft(x).abs(),
        lambda x: torch.where(x > 0, x.log1p(), x.erf()),
    ],
    ids=["attention", "view", "given view", "sdpa", "cat", "complex", "where"],
)
def test_the_twin_is_what_float64_computes_from_the_same_inputs(function: Callable[..., Tensor]) -> None:
    plain = function(X.clone())
    expected = function(X.clone().double())

    result, twin = twin_of(function, X.clone())

    assert torch.equal(result, plain)
    assert twin.dtype == torch.float64
    torch.testing.assert_close(twin, expected, rtol=1e-12, atol=1e-12)


def test_casts_inside_the_code_do_not_round_the_twin() -> None:
    def normed(x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    x = X.bfloat16()
    result, twin = twin_of(normed, x)

    exact = x.double() * torch.rsqrt(x.double().pow(2).mean(-1, keepdim=True) + 1e-6)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(twin, exact, rtol=1e-13, atol=1e-13)


def test_code_sees_its_own_dtype_and_so_its_own_masks() -> None:
    def masked(x: Tensor) -> Tensor:
        scores = x + torch.full_like(x, torch.finfo(x.dtype).min)  # every position is masked
        return scores.softmax(-1)

    result, twin = twin_of(masked, X)

    assert bool(twin.isfinite().all())  # in float64 the sum would be -inf, and the softmax NaN
    torch.testing.assert_close(result.double(), twin, rtol=1e-6, atol=1e-6)


def test_branches_and_indices_are_those_of_the_run() -> None:
    def sorted_values(x: Tensor) -> Tensor:
        order = x.flatten().argsort()
        return x.flatten()[order].cumsum(0) if bool(x.sum() > -1e9) else x

    result, twin = twin_of(sorted_values, X)

    assert float((result.double() - twin).abs().max()) < 1e-4


def test_dropout_draws_one_mask_for_both() -> None:
    torch.manual_seed(3)
    result, twin = twin_of(lambda x: nn.functional.dropout(x.exp(), 0.5, training=True), X)

    assert torch.equal(result == 0, twin == 0)


@pytest.mark.parametrize("function", [copy.deepcopy, lambda x: x.to(torch.bfloat16).view(torch.float16)])
def test_memory_that_is_read_as_bytes_is_not_read_as_float64(function: Callable[..., Tensor]) -> None:
    result, twin = twin_of(function, X)
    assert torch.equal(result.double(), twin)


def test_counters_are_written_once() -> None:
    net = nn.BatchNorm1d(5).train()
    once = copy.deepcopy(net)
    once(X)

    with torch.no_grad(), Float64Mode():
        net(X)

    left, right = dict(net.named_buffers()), dict(once.named_buffers())
    assert int(left["num_batches_tracked"]) == int(right["num_batches_tracked"]) == 1
    assert torch.equal(left["running_mean"], right["running_mean"])


def test_experts_of_a_mixture_have_a_float64_value() -> None:
    rows, experts = torch.randn(6, 16).bfloat16(), torch.randn(3, 16, 16).bfloat16()
    ends = torch.tensor([2, 2, 6], dtype=torch.int32)
    mode = Float64Mode()
    with torch.no_grad(), mode:
        result = torch.ops.aten._grouped_mm(rows, experts, ends)

    exact = torch.cat([rows.double()[:2] @ experts.double()[0], rows.double()[2:] @ experts.double()[2]])
    torch.testing.assert_close(mode.twin(result), exact, rtol=1e-12, atol=1e-12)
    assert not mode.without_kernel


def test_an_op_without_a_float64_kernel_is_named() -> None:
    weight = torch.randint(-8, 8, (16, 32), dtype=torch.int8)
    mode = Float64Mode()
    with torch.no_grad(), mode:
        result = torch.ops.aten._weight_int8pack_mm(torch.randn(4, 32).bfloat16(), weight, torch.ones(16).bfloat16())

    assert dict(mode.without_kernel) == {"aten._weight_int8pack_mm.default": 1}
    assert torch.equal(mode.twin(result), result.double())


@pytest.mark.parametrize("net", [nn.GRU(8, 6), nn.TransformerEncoderLayer(8, 2)])
def test_fused_modules_have_twins_of_all_outputs(net: nn.Module) -> None:
    net = net.eval()
    with torch.no_grad():
        plain = dict(named_tensors(net(X)))
        exact = dict(named_tensors(copy.deepcopy(net).double()(X.double())))
        mode = Float64Mode()
        with mode:
            found = dict(named_tensors(net(X)))

    for path, tensor in found.items():
        assert torch.equal(tensor, plain[path])
        torch.testing.assert_close(mode.twin(tensor), exact[path], rtol=1e-11, atol=1e-11)


def test_an_lstm_of_onednn_asks_for_plain_kernels_and_has_a_twin_with_them() -> None:
    torch.manual_seed(0)
    net = nn.LSTM(8, 6, 2, batch_first=True).eval()
    mode = Float64Mode()
    with torch.no_grad(), mode:
        net(X)
    if mode.without_kernel:  # this build of torch runs an LSTM with oneDNN
        assert mode.needs_plain_kernels
    evidence = ExpectedOutputs(net, lambda: ((X,), {}))

    exact = copy.deepcopy(net).double()(X.double())[0].detach()

    torch.testing.assert_close(evidence.float64("0"), exact, rtol=1e-12, atol=1e-12)

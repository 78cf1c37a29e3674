"""Attempts to refute the judge: faults that are easy to miss, and correct results that are easy to call wrong."""

import copy
from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from torchstone.numerics.expected import ExpectedOutputs
from torchstone.numerics.number_formats import round_to
from torchstone.numerics.verdict import judge

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
X = torch.randn(64, 128, generator=torch.Generator().manual_seed(0))


class Code(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def state(code: nn.Module | Callable[..., Any], args: tuple[Tensor, ...], change: Any, profile: str = "default") -> str:
    """The state of what a change makes of the correct result."""
    module = code if isinstance(code, nn.Module) else Code(code)
    with torch.no_grad():
        expected = copy.deepcopy(module)(*copy.deepcopy(args))
        actual = change(copy.deepcopy(expected))
    evidence = ExpectedOutputs(module, lambda: (copy.deepcopy(args), {}), profile)
    return str(judge(expected, actual, None, evidence)["state"])


def linear(dtype: torch.dtype) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(128, 96).to(dtype)


def at(place: int, change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Change one element."""

    def changed(values: Tensor) -> Tensor:
        flat = values.clone().flatten()
        flat[place] = change(flat[place])
        return flat.reshape(values.shape)

    return changed


def next_up(values: Tensor) -> Tensor:
    if values.dtype == torch.float32:
        return values.nextafter(values * 2)
    return (values.float() * (1 + torch.finfo(values.dtype).eps)).to(values.dtype)


def next_down(values: Tensor) -> Tensor:
    if values.dtype == torch.float32:
        return values.nextafter(values * 0)
    return (values.float() * (1 - torch.finfo(values.dtype).eps / 2)).to(values.dtype)


SMALL_FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "one element": lambda y: at(4000, lambda v: v + y.float().std())(y),
    "one row by 3 %": lambda y: torch.cat([y[:1] * 1.03, y[1:]]),
    "one column by 6 %": lambda y: torch.cat([y[:, :1] * 1.06, y[:, 1:]], 1),
    "all by 1 %": lambda y: (y.float() * 1.012).to(y.dtype),
    "an offset": lambda y: (y.float() + 0.015 * y.float().std()).to(y.dtype),
    "two rows exchanged": lambda y: torch.cat([y[1:2], y[:1], y[2:]]),
    "one NaN": at(7, lambda v: v * nan),
    "one overflow": at(7, lambda v: v + inf),
}


@pytest.mark.parametrize("fault", SMALL_FAULTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_fault_in_a_small_part_is_wrong(dtype: torch.dtype, fault: str) -> None:
    assert state(linear(dtype), (X.to(dtype),), SMALL_FAULTS[fault]) == "wrong"


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_fault_in_one_of_a_million_elements_is_wrong(dtype: torch.dtype) -> None:
    values = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(0)).to(dtype)

    assert state(torch.sin, (values,), at(700_000, lambda v: v + 0.1)) == "wrong"


@pytest.mark.parametrize("dtype", FLOATS)
def test_large_channels_do_not_hide_faults_in_the_others(dtype: torch.dtype) -> None:
    """Trained transformers have a few channels that are hundreds of times as large as the others."""
    large = torch.ones(128)
    large[5] = 300

    def doubled(y: Tensor) -> Tensor:
        return torch.cat([y[:, :60], y[:, 60:61] * 1.2, y[:, 61:]], 1)

    assert state(lambda x: x * large.to(dtype) + x, (X.to(dtype),), doubled) == "wrong"


@pytest.mark.parametrize("dtype", FLOATS)
def test_nearly_constant_outputs_are_judged_by_their_error_not_by_their_correlation(dtype: torch.dtype) -> None:
    args = (8 + X.to(dtype) / 1000,)

    assert state(torch.sigmoid, args, next_down) in (["passed"] if dtype != torch.float16 else ["passed", "suspicious"])
    assert state(torch.sigmoid, args, lambda y: y * 0.97) == "wrong"


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_scalar(dtype: torch.dtype) -> None:
    args = (X.to(dtype),)

    assert state(lambda x: x.abs().mean(), args, next_up) == "passed"
    assert state(lambda x: x.abs().mean(), args, lambda y: y * 1.06) == "wrong"
    assert state(lambda x: x[:0], args, lambda y: y) == "passed"


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 1e-39), (torch.bfloat16, 1e-39), (torch.float16, 1e-7)])
def test_numbers_below_the_normal_ones_may_become_0(dtype: torch.dtype, factor: float) -> None:
    assert state(lambda x: x * factor, (X.to(dtype),), torch.zeros_like) == "passed"


def test_small_normal_float16_numbers_are_judged_in_steps_of_their_own() -> None:
    """Probabilities of 1/256 are 64 times the smallest normal float16 number, which is no noise for them."""
    rows = torch.randn(64, 256, generator=torch.Generator().manual_seed(0)).half()

    assert state(lambda x: torch.softmax(x / 8, -1), (rows,), lambda _: torch.softmax(rows / 8.4, -1)) == "wrong"


@pytest.mark.parametrize("factor", [1e30, 1e-30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_huge_and_small_magnitudes(dtype: torch.dtype, factor: float) -> None:
    args = (X.to(dtype) * factor,)

    assert state(lambda x: x * 2, args, lambda y: y * 1.05) == "wrong"
    assert state(torch.abs, args, lambda y: y) == "passed"


@pytest.mark.parametrize("eps", [1e-6, 1e-4, 1e-3])
def test_a_wrong_eps_is_seen_in_float32(eps: float) -> None:
    assert state(nn.LayerNorm(128), (X,), lambda _: functional.layer_norm(X, (128,), eps=eps)) in (
        "wrong",
        "suspicious",
    )


def test_another_formula_of_an_activation_is_seen_in_float32_and_legal_in_bfloat16() -> None:
    narrow = X.bfloat16()

    assert state(nn.GELU(), (X,), lambda _: functional.gelu(X, approximate="tanh")) == "wrong"
    assert state(nn.GELU(), (narrow,), lambda _: functional.gelu(narrow, approximate="tanh")) != "wrong"
    assert state(nn.GELU(), (narrow,), lambda _: narrow * torch.sigmoid(1.702 * narrow)) == "wrong"


def test_batch_norm_in_training_and_dropout() -> None:
    assert state(nn.BatchNorm1d(128).train(), (X,), lambda y: y) == "passed"
    assert state(nn.BatchNorm1d(128).train(), (X[:16],), lambda y: y * (15 / 16) ** 0.5) == "wrong"
    torch.manual_seed(0)
    with torch.random.fork_rng():
        assert state(nn.Dropout(0.5), (X,), lambda y: y) == "passed"


def _noisy(x: Tensor) -> Tensor:
    return x @ x.t() + 3 * torch.randn(x.shape[0], x.shape[0])


def _drawn_again(_: Tensor, spread: float = 3, offset: float = 0) -> Tensor:
    generator = torch.Generator().manual_seed(77)
    return X @ X.t() + spread * torch.randn(len(X), len(X), generator=generator) + offset


def test_other_random_numbers_of_the_same_distribution_pass_and_others_do_not() -> None:
    assert state(_noisy, (X,), _drawn_again) == "passed"
    assert state(_noisy, (X,), lambda y: _drawn_again(y, spread=15)) == "wrong"
    assert state(_noisy, (X,), lambda y: _drawn_again(y, offset=10)) == "wrong"
    assert state(_noisy, (X,), lambda y: torch.full_like(y, torch.nan)) == "wrong"


def test_a_mask_that_is_drawn_is_compared_by_how_often_it_is_set() -> None:
    def mask(x: Tensor) -> Tensor:
        return torch.rand(x.shape) < 0.1

    generator = torch.Generator().manual_seed(78)
    assert state(mask, (X,), lambda _: torch.rand(X.shape, generator=generator) < 0.1) == "passed"
    assert state(mask, (X,), lambda _: torch.rand(X.shape, generator=generator) < 0.9) == "wrong"


# --- Integers, booleans, indices, complex numbers ---


def test_integers_from_integers_are_exact() -> None:
    integers = torch.arange(64)

    assert state(lambda x: x * 3, (integers,), at(9, lambda v: v + 1)) == "wrong"
    wrapped = torch.arange(-100, 100).to(torch.int8)
    assert state(lambda x: x * 3, (wrapped,), lambda y: y) == "passed"
    assert state(lambda x: x * 3, (wrapped,), lambda _: (wrapped.int() * 3).clamp(-128, 127).to(torch.int8)) == "wrong"


def test_a_value_at_a_threshold_may_fall_to_either_side() -> None:
    values = torch.cat([X.flatten()[:127], torch.tensor([3.0])])

    assert state(lambda x: x * 0.1 > 0.3, (values,), at(127, torch.logical_not)) == "passed"
    assert state(lambda x: x * 0.1 > 0.3, (values,), at(0, torch.logical_not)) == "wrong"


def test_a_quantized_value_between_two_integers_may_be_either() -> None:
    values = torch.cat([X.flatten()[:127], torch.tensor([0.25])])

    def quantize(x: Tensor) -> Tensor:
        return torch.round(x * 10).to(torch.int8)

    assert state(quantize, (values,), at(127, lambda v: v + 1)) == "passed"
    assert state(quantize, (values,), at(0, lambda v: v + 1)) == "wrong"
    assert state(quantize, (values,), lambda y: y + 1) == "wrong"


def test_indices_of_equal_values() -> None:
    tied = X.clone()
    tied[:, [5, 7]] = 9.0

    assert state(lambda x: x.argmax(-1), (tied,), lambda y: torch.full_like(y, 7)) == "passed"
    assert state(lambda x: x.argmax(-1), (tied,), lambda y: torch.full_like(y, 6)) == "wrong"
    assert state(lambda x: x.topk(2), (tied,), lambda y: (y[0], y[1].flip(-1))) == "passed"
    assert state(lambda x: x.topk(2), (tied,), lambda y: (y[0], y[1] * 0 + 5)) == "wrong"
    assert state(lambda x: x.sort(-1), (X,), lambda _: X.sort(-1, descending=True)) == "wrong"


def test_the_order_of_equal_whole_numbers_is_free_beside_outputs_with_noise() -> None:
    """A router sorts the numbers of experts: a sort that is not stable orders equal ones in its own way."""
    experts = torch.tensor([2, 0, 1, 0, 2, 1])

    def route(x: Tensor) -> tuple[Tensor, Tensor]:
        return functional.linear(x, x), torch.argsort(experts + x.isnan().sum())

    def other(result: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return result[0] * (1 + 1e-7), torch.tensor([3, 1, 2, 5, 0, 4])

    assert state(route, (X,), other) == "passed"
    assert state(route, (X,), lambda y: (y[0] * (1 + 1e-7), y[1].flip(0))) == "wrong"


def test_indices_of_a_port_in_a_narrow_format_are_judged_in_that_format() -> None:
    logits = X.clone()
    logits[:, 3], logits[:, 4] = 9.0, 9.01

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 1.5, (x * 1.5).argmax(-1)

    assert state(both, (logits,), lambda y: (y[0].bfloat16(), torch.full_like(y[1], 3))) == "passed"
    assert state(both, (logits,), lambda y: (y[0], torch.full_like(y[1], 3))) == "wrong"


def test_a_wide_output_of_a_port_in_a_narrow_format_is_judged_in_that_format() -> None:
    """Models that end with `.float()` return float32 logits beside a cache in bfloat16."""

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 1.5, x * 1.5

    def port(y: tuple[Tensor, Tensor], factor: float = 1.0) -> tuple[Tensor, Tensor]:
        return y[0].bfloat16(), y[1].bfloat16().float() * 1.0001 * factor

    assert state(both, (X,), port) == "passed"
    assert state(both, (X,), lambda y: port(y, 1.05)) == "wrong"
    assert state(both, (X,), lambda y: (y[0], port(y)[1])) == "wrong"


def test_complex_numbers() -> None:
    values = torch.complex(X, X.flip(0))

    assert state(torch.fft.fft, (values,), lambda _: torch.fft.fft(values.to(torch.complex128)).to(values.dtype)) == (
        "passed"
    )
    assert state(lambda x: x * x, (values,), lambda y: y * torch.exp(torch.tensor(1e-3j))) == "wrong"
    assert state(lambda x: x * x, (values,), torch.conj) == "wrong"


def test_block_float_weights_of_a_linear_layer_are_part_of_the_noise() -> None:
    net = linear(torch.float32)
    weight, bias = net.weight.detach(), net.bias.detach().bfloat16().float()

    def port(rounded: str) -> Callable[[Tensor], Tensor]:
        return lambda _: (X.bfloat16().float() @ round_to(weight, rounded).T + bias).bfloat16()

    assert state(net, (X,), port("bfloat8_b"), "tt-bfloat8_b") == "passed"
    assert state(net, (X,), port("bfloat4_b"), "tt-bfloat8_b") == "wrong"
    assert state(net, (X,), port("bfloat4_b"), "tt-bfloat4_b") == "passed"
    assert state(net, (X,), port("bfloat4_b"), "tt") == "wrong"

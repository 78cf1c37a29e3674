"""Noise floors: what correct implementations do is below them, what wrong ones do is above."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from torchstone.numerics.expected import ExpectedOutputs
from torchstone.numerics.noise_floor import assumed_floor, deviation, floor_of, multiple_of
from torchstone.numerics.number_formats import is_rounded_to, round_to, spacing
from torchstone.numerics.profiles import SUSPICIOUS_ABOVE, WRONG_ABOVE
from torchstone.numerics.verdict import judge


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Op(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> object:
        return self.function(*args)


def verdict_on(
    module: nn.Module, args: tuple[Tensor, ...], actual: object, profile: str = "default"
) -> dict[str, object]:
    with torch.no_grad():
        expected = module(*args)
    evidence = ExpectedOutputs(module, lambda: (tuple(one.clone() for one in args), {}), profile)
    return judge(expected, actual, None, evidence)


# --- Correct implementations that differ from eager ---


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1, 2, 31, 64, 257, 4096])
def test_a_matmul_that_adds_in_another_order_passes(size: int, dtype: torch.dtype) -> None:
    left, right = drawn(7, size).to(dtype), drawn(size, 9, seed=1).to(dtype)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(2))
    halves = [(left[:, part] @ right[part]) for part in order.chunk(3) if len(part)]
    wide = (left.double() @ right.double()).to(dtype)
    module = Op(torch.matmul)

    for actual in (left[:, order] @ right[order], sum(halves), wide):
        assert verdict_on(module, (left, right), actual)["state"] == "passed"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [1, 3, 128, 1000])
def test_sums_from_the_other_end_pass(length: int, dtype: torch.dtype) -> None:
    x = (drawn(5, length) + 10).to(dtype)
    for function in (torch.sum, torch.mean, torch.logsumexp):
        module = Op(lambda one, function=function: function(one, dim=-1))
        assert verdict_on(module, (x,), function(x.flip(-1), dim=-1))["state"] == "passed"


@pytest.mark.parametrize("function", [torch.exp, torch.tanh, torch.erf, torch.sigmoid, nn.functional.gelu, torch.rsqrt])
def test_another_library_may_be_off_by_a_step_or_two(function: Callable[[Tensor], Tensor]) -> None:
    x = drawn(6, 40).abs() + 0.01
    expected = function(x)
    neighbour = torch.nextafter(torch.nextafter(expected, torch.tensor(9.0)), torch.tensor(9.0))

    assert verdict_on(Op(function), (x,), neighbour)["state"] == "passed"


def test_a_nearly_constant_sigmoid_with_an_error_of_one_step_passes() -> None:
    x = 12 + 1e-6 * drawn(64)
    expected = torch.sigmoid(x)
    actual = torch.nextafter(expected, torch.zeros(()))

    found = verdict_on(Op(torch.sigmoid), (x,), actual)

    assert found["state"] == "passed"
    assert found["pcc"] is None or found["pcc"] < 0.99  # type: ignore[operator]


def test_float32_inside_a_bfloat16_chain_passes() -> None:
    def chain(x: Tensor) -> Tensor:
        return nn.functional.silu(x * 1.7 + 0.3) * x

    x = drawn(16, 64).bfloat16()
    assert verdict_on(Op(chain), (x,), chain(x.float()).bfloat16())["state"] == "passed"


# --- Faults ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(64, 64), (3, 50), (1, 257), (128, 33)])
def test_a_result_that_is_one_percent_too_large_is_wrong(shape: tuple[int, int], dtype: torch.dtype) -> None:
    linear = nn.Linear(shape[1], 48).to(dtype)
    x = drawn(*shape).to(dtype)
    with torch.no_grad():
        actual = (linear(x).double() * 1.01).to(dtype)

    assert verdict_on(linear, (x,), actual)["state"] == "wrong"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "change",
    [
        lambda good, _x, net: good - net.bias,
        lambda good, *_: good * 1.2,
        lambda good, *_: good.roll(1, -1),
        lambda good, *_: torch.where(torch.arange(good.shape[0])[:, None] == 3, 0.8 * good, good),
        lambda good, *_: torch.where(torch.arange(good.shape[1]) == 5, good + 0.3, good),
        lambda good, *_: torch.cat([good[1:], good[:1]]),
        lambda _good, x, net: nn.functional.linear(x[:, :-1], net.weight[:, :-1], net.bias),
    ],
    ids=["no bias", "scaled", "shifted channels", "one token", "one channel", "shifted tokens", "short sum"],
)
def test_faults_of_a_linear_layer_are_wrong(
    change: Callable[[Tensor, Tensor, nn.Linear], Tensor], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(64, 96).to(dtype)
    x = drawn(50, 64).to(dtype)
    with torch.no_grad():
        actual = change(linear(x), x, linear).to(dtype)

    assert verdict_on(linear, (x,), actual)["state"] == "wrong"


def test_bfloat16_inside_a_float32_matmul_is_wrong_by_default_and_right_on_tenstorrent() -> None:
    left, right = drawn(32, 256), drawn(256, 16, seed=1)
    actual = (left.bfloat16() @ right.bfloat16()).float()

    assert verdict_on(Op(torch.matmul), (left, right), actual)["state"] == "wrong"
    assert verdict_on(Op(torch.matmul), (left, right), actual, "tt")["state"] == "passed"


def test_another_activation_and_another_eps_are_wrong() -> None:
    x = drawn(20, 32)
    assert verdict_on(Op(nn.functional.gelu), (x,), nn.functional.gelu(x, approximate="tanh"))["state"] == "wrong"
    x = x * 0.02
    norm = nn.LayerNorm(32, eps=1e-5)
    with torch.no_grad():
        actual = nn.functional.layer_norm(x, (32,), norm.weight, norm.bias, 1e-6)
    assert verdict_on(norm, (x,), actual)["state"] == "wrong"


def test_a_block_float_that_is_cut_off_instead_of_rounded_is_not_passed() -> None:
    weight, x = drawn(64, 64), drawn(32, 64, seed=1)
    module = nn.Linear(64, 64, bias=False)
    module.weight = nn.Parameter(weight)
    rounded = (x.bfloat16().float() @ round_to(weight, "bfloat8_b").T).bfloat16().float()
    step = weight.abs().unflatten(-1, (-1, 16)).amax(-1, keepdim=True).frexp().exponent - 7
    cut = (weight.unflatten(-1, (-1, 16)) / 2.0**step).floor().mul(2.0**step).flatten(-2)
    floored = (x.bfloat16().float() @ cut.T).bfloat16().float()

    assert verdict_on(module, (x,), rounded, "tt-bfloat8_b")["state"] == "passed"
    assert (
        verdict_on(module, (x,), floored, "tt-bfloat8_b")["noise_multiple"]
        > verdict_on(  # type: ignore[operator]
            module, (x,), rounded, "tt-bfloat8_b"
        )["noise_multiple"]
    )


# --- Ties, masks, padding, unread outputs ---


def test_other_indices_of_equal_values_pass_and_of_other_values_do_not() -> None:
    x = torch.tensor([[3.0, 1.0, 3.0, 2.0]])
    module = Op(lambda one: torch.topk(one, 2))

    assert verdict_on(module, (x,), (torch.tensor([[3.0, 3.0]]), torch.tensor([[2, 0]])))["state"] == "passed"
    for wrong in ([0, 3], [0, 0], [0, 7], [0, -1]):
        answer = (torch.tensor([[3.0, 3.0]]), torch.tensor([wrong]))
        assert verdict_on(module, (x,), answer)["state"] == "wrong"


@pytest.mark.parametrize("function", [torch.argmax, lambda one: one.argmax(-1), lambda one: one.sort(-1).indices])
def test_ties_of_argmax_and_sort(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor([[2.0, 5.0, 5.0, 1.0], [0.0, 1.0, 1.0, 1.0]])
    module = Op(function)
    flipped = function(x.flip(-1))
    other = x.numel() - 1 - flipped if flipped.dim() == 0 else 3 - flipped

    found = verdict_on(module, (x,), other if other.dim() < 2 else other.flip(-1).flip(-1))
    assert found["state"] in ("passed", "wrong")
    assert verdict_on(module, (x,), function(x))["state"] == "passed"
    assert verdict_on(module, (x,), torch.zeros_like(function(x)))["state"] == "wrong"


def test_the_index_of_a_nearly_equal_logit_inside_a_module_passes() -> None:
    class Picks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(32, 2, bias=False)
            with torch.no_grad():
                self.head.weight[1] = self.head.weight[0].flip(0)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x + x.flip(-1)).argmax(-1)  # both logits are the same sum in another order

    torch.manual_seed(0)
    net, x = Picks(), drawn(40, 32)
    with torch.no_grad():
        other = 1 - net(x)
    assert verdict_on(net, (x,), other)["state"] == "passed"


def test_numbers_at_the_end_of_the_range_are_compared_by_kind() -> None:
    lowest = torch.finfo(torch.float32).min
    expected = torch.tensor([[0.0, lowest, lowest], [0.0, 0.0, lowest]])
    module = Op(lambda one: one * 1)

    assert verdict_on(module, (expected,), expected.bfloat16().float().clamp(lowest))["state"] == "passed"
    assert verdict_on(module, (expected,), torch.zeros(2, 3))["state"] == "wrong"
    assert verdict_on(module, (expected,), expected.clamp(-1e9))["state"] == "wrong"


def test_padding_positions_do_not_decide() -> None:
    tokens = torch.tensor([[True] * 2 + [False] * 30])
    module, x = nn.Linear(8, 8), drawn(1, 32, 8)
    with torch.no_grad():
        expected = module(x)
    evidence = ExpectedOutputs(module, lambda: ((x,), {}), tokens=tokens)
    in_padding, in_tokens = expected.clone(), expected.clone()
    in_padding[0, 5:] = float("nan")
    in_tokens[0, 1] *= 1.3

    assert judge(expected, in_padding, None, evidence)["state"] == "passed"
    assert "30 padding positions" in judge(expected, in_padding, None, evidence)["leaves"][0]["reason"]
    assert judge(expected, in_tokens, None, evidence)["state"] == "wrong"


def test_outputs_that_nobody_reads_are_reported_and_do_not_decide() -> None:
    found = judge([torch.ones(4), torch.ones(3)], [torch.ones(4), torch.ones(0)], unread={"1"})

    assert found["state"] == "passed"
    assert [leaf["status"] for leaf in found["leaves"]] == ["passed", "wrong shape"]
    assert found["leaves"][1]["unread"]


# --- Arithmetic ---


@settings(max_examples=60)
@given(
    shape=st.lists(st.integers(1, 7), min_size=0, max_size=4),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e20]),
    factor=st.sampled_from([1e-6, 1e-2, 3.0]),
)
def test_a_deviation_is_what_its_definition_says(shape: list[int], scale: float, factor: float) -> None:
    reference = drawn(*shape).double() * scale
    error = drawn(*shape, seed=1).double() * scale * factor
    found = deviation(reference, reference + error)
    actual = (reference + error) - reference

    assert found.rms == pytest.approx(float(actual.square().mean().sqrt()), rel=1e-9)
    assert found.largest == pytest.approx(float(actual.abs().max()), rel=1e-9)
    assert found.gain == pytest.approx(abs(float((actual * reference).sum() / reference.square().sum())), rel=1e-6)
    assert found.offset == pytest.approx(abs(float(actual.mean())), rel=1e-6, abs=1e-12 * found.largest)


def test_the_multiple_grows_with_the_error_and_names_the_slice() -> None:
    reference = drawn(10, 64).double()
    floor = floor_of(
        [deviation(reference, reference + 1e-3 * drawn(10, 64, seed=seed)) for seed in range(4)], "bfloat16"
    )
    error = torch.zeros(10, 64).double()
    multiples = []
    for size in (1e-3, 1e-1, 10.0):
        error[4] = size
        multiples.append(multiple_of(deviation(reference, reference + error), floor))

    assert multiples[0].value < multiples[1].value < multiples[2].value
    assert "4 of dimension 0" in multiples[2].measure or multiples[2].measure == "largest element"
    assert SUSPICIOUS_ABOVE < WRONG_ABOVE < multiples[2].value


def test_without_a_run_the_noise_is_assumed_from_the_dtype_and_says_so() -> None:
    values = deviation(torch.ones(100), torch.ones(100) * 1.001)

    assert assumed_floor(values, "float32", "no model").basis == "assumed from float32: no model"
    found = judge(torch.ones(100) * drawn(100), torch.ones(100) * drawn(100) * 1.001)
    assert found["state"] == "wrong"
    assert "assumed" in found["reason"]


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=70), st.sampled_from(["bfloat8_b", "bfloat4_b"]))
def test_block_floats_share_the_exponent_of_their_largest(values: list[float], name: str) -> None:
    tensor = torch.tensor(values)
    rounded = round_to(tensor, name)

    assert is_rounded_to(rounded, name)
    for start in range(0, len(values), 16):
        block, found = tensor[start : start + 16].double(), rounded[start : start + 16].double()
        top = float(block.abs().max())
        step = spacing(name) * 2.0 ** (torch.tensor(top).frexp().exponent.item() - 1) if top else 0.0
        assert bool(((block - found).abs() <= step).all())

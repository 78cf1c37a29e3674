import pytest
import torch
from torch import Tensor, nn

from tests.cost.calls import cost_of
from tests.cost.devices import device
from tests.cost.test_storages import tiny_llama
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.optimizer import OPTIMISERS, optimiser_cost
from torchstone.cost.roofline import predict
from torchstone.cost.scaling import split_over
from torchstone.models import load
from torchstone.record.cost import Kind


def test_adam_holds_two_moments_of_each_trainable_parameter() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].requires_grad_(requires_grad=False)
    found = optimiser_cost(capture(model, torch.ones(1, 4)), "adamw")
    assert (found.parameters, found.gradient_bytes, found.state_bytes) == (20, 80, 160)
    assert found.flops == 14 * 20
    assert (found.bytes_read, found.bytes_written) == (80 + 80 + 160, 80 + 160)


def test_moments_are_float32_whatever_the_weights_are() -> None:
    model = nn.Linear(4, 4, bias=False).to(torch.bfloat16)
    found = optimiser_cost(capture(model, torch.ones(1, 4, dtype=torch.bfloat16)), "momentum")
    assert (found.gradient_bytes, found.state_bytes) == (32, 64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_moments_of_larger_elements_are_as_large_as_torchs_own(name: str, dtype: torch.dtype) -> None:
    layer = nn.Linear(5, 7, bias=False, dtype=dtype)
    found = optimiser_cost(capture(layer, torch.ones(1, 5, dtype=dtype)), name)
    layer.weight.grad = torch.ones_like(layer.weight)
    torchs = torch.optim.Adam([layer.weight]) if name == "adam" else torch.optim.SGD([layer.weight], momentum=0.9)
    torchs.step()
    states = [one for one in torchs.state[layer.weight].values() if isinstance(one, torch.Tensor) and one.dim()]
    assert found.state_bytes == sum(one.numel() * one.element_size() for one in states)


def test_plain_descent_holds_nothing() -> None:
    assert optimiser_cost(capture(nn.Linear(4, 4), torch.ones(1, 4)), "sgd").state_bytes == 0
    assert set(OPTIMISERS) == {"sgd", "momentum", "adam", "adamw"}


@pytest.mark.parametrize(("name", "switches"), [("SGD", {}), ("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {})])
def test_a_step_costs_what_torch_does_in_one_kernel(name: str, switches: dict[str, float]) -> None:
    layer = nn.Linear(100, 100, bias=False)
    found = optimiser_cost(capture(layer, torch.ones(1, 100)), "momentum" if switches else name.lower())
    layer.weight.grad = torch.ones(100, 100)
    optimiser = getattr(torch.optim, name)(layer.parameters(), lr=0.1, fused=True, **switches)
    optimiser.step()

    def step(x: torch.Tensor) -> torch.Tensor:
        optimiser.step()
        return x.view(1)

    signatures = cost_of(step, torch.ones(1)).signatures
    fused = next(cost for cost in signatures if cost.kind is Kind.OPTIMISER and cost.flops >= 10_000)
    assert found.flops == fused.flops
    assert found.bytes_written == fused.bytes_written
    assert 0 <= fused.bytes_read - found.bytes_read <= 4  # the number of the step


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 32, bias=False)
        self.down = nn.Linear(32, 8, bias=False)
        self.norm = nn.LayerNorm(8, elementwise_affine=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


def test_a_pair_of_matmuls_needs_one_all_reduce() -> None:
    trace = capture(nn.Sequential(Block(), Block()), torch.ones(4, 8))
    found = split_over(trace, price(trace), 4)
    size = 4 * 8 * 4
    assert [(one.kind, one.calls) for one in found.collectives] == [("all-reduce", 1), ("all-reduce", 1)]
    assert found.collective_bytes == 2 * 2 * (size * 3 // 4)
    assert found.weight_bytes == 2 * (2 * 8 * 32 * 4) // 4


class Unpacked(nn.Module):
    """The same layers with weights that are stored in int8 and scaled before they are multiplied with."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.ones(32, 8, dtype=torch.int8), requires_grad=False)
        self.down = nn.Parameter(torch.ones(8, 32, dtype=torch.int8), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ (self.up.float() * 0.5).t()) @ (self.down.float() * 0.5).t()


def test_weights_that_are_unpacked_before_a_matmul_are_split_as_stored_ones_are() -> None:
    traces = [capture(model, torch.ones(4, 8)) for model in (Unpacked(), nn.Sequential(nn.Linear(8, 32, bias=False),
              nn.ReLU(), nn.Linear(32, 8, bias=False)))]  # fmt: skip
    unpacked, plain = (split_over(trace, price(trace), 2) for trace in traces)
    assert unpacked.collective_bytes == plain.collective_bytes == 4 * 8 * 4
    assert [one.kind for one in unpacked.collectives] == ["all-reduce"]
    assert unpacked.weight_bytes == 2 * 8 * 32 // 2


def test_what_is_not_split_is_done_by_every_device() -> None:
    trace = capture(Block(), torch.ones(4, 8))
    table = price(trace)
    norm = next(module for module in table.modules if module.path == "norm").flops
    found = split_over(trace, table, 2)
    shared = table.totals.flops - norm - 32  # the residual addition is done by all
    assert found.flops == norm + 32 + shared // 2


def test_a_language_model_has_two_exchanges_a_layer_and_gathers_its_logits() -> None:
    trace = tiny_llama()
    kinds = [one.kind for one in split_over(trace, price(trace), 2).collectives for _ in range(one.calls)]
    assert kinds.count("all-reduce") == 2 * 2
    assert kinds.count("all-gather") == 1


def test_the_time_includes_the_exchanges_where_the_link_is_known() -> None:
    trace = capture(Block(), torch.ones(64, 8))
    table = price(trace)
    known, unknown = device(), device(link_bytes_per_s=None)
    found = split_over(trace, table, 2, predict(trace, table, known))
    assert found.seconds is not None
    assert found.seconds > found.collective_bytes / 1e9
    silent = split_over(trace, table, 2, predict(trace, table, unknown))
    assert silent.seconds is None
    assert "names no link_gb_per_s" in silent.notes[0]


class Parallel(nn.Module):
    """Two branches that read the same data and are added up with it, as in GPT-J."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x: Tensor) -> Tensor:
        up = torch.relu(self.first.up(x))
        return x + self.first.down(up) + self.second.down(torch.relu(self.second.up(x)))


def test_sums_that_are_added_to_each_other_are_exchanged_once() -> None:
    trace = capture(Parallel(), torch.ones(4, 8))
    found = split_over(trace, price(trace), 4)
    assert [(one.kind, one.calls) for one in found.collectives] == [("all-reduce", 1)]


def test_a_training_step_has_four_exchanges_a_layer_as_in_megatron() -> None:
    trace = capture(*load("tiny:llama"), backward=True)
    found = split_over(trace, price(trace), 2)
    reduced = [one for one in found.collectives if one.kind == "all-reduce"]
    assert sum(one.calls for one in reduced) == 2 * 4 + 1  # and the gradient of the logits
    assert len({one.bytes_each for one in reduced}) == 1


class Head(nn.Module):
    """A norm over the whole width of split data, as before BERT's decoder."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.dense, self.decoder = nn.Linear(8, 8), nn.Linear(8, 32)

    def forward(self, x: Tensor) -> Tensor:
        given = self.dense(x).view(-1, self.groups, 8 // self.groups)
        normed = torch.layer_norm(given, (8 // self.groups,)).view(-1, 8)
        decoded: Tensor = self.decoder(normed)
        return decoded


def test_a_norm_over_the_split_width_gathers_and_one_within_a_head_does_not() -> None:
    whole, within = (
        [(one.kind, one.after) for one in split_over(trace, price(trace), 2).collectives]
        for trace in (capture(Head(groups), torch.ones(4, 8)) for groups in (1, 4))
    )
    assert whole == [("all-gather", "aten.native_layer_norm.default"), ("all-gather", "the result")]
    assert within == [("all-reduce", "aten.addmm.default")]


def test_splitting_never_takes_less_than_the_launches() -> None:
    trace = capture(Block(), torch.ones(4, 8))
    table = price(trace)
    slow_start = device(launch_s=1.0)
    alone = predict(trace, table, slow_start)
    split = split_over(trace, table, 2, alone)
    assert split.seconds is not None
    assert split.seconds == pytest.approx(alone.total_s + 1.0)  # and the launch of one exchange

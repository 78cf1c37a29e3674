import torch
from torch import Tensor, nn

from tests.cost.devices import device
from tests.cost.test_storages import tiny_llama
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.roofline import predict
from torchstone.cost.tensor_parallel import split_over


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

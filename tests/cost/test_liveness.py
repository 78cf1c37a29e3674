from collections import OrderedDict

import torch
from torch import Tensor, nn

from tests.cost.calls import trace_of
from tests.cost.test_storages import tiny_llama
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.liveness import LiveMemory, live_memory
from torchstone.cost.shorten import whole
from torchstone.cost.storages import find_storages
from torchstone.record.cost import Category
from torchstone.record.trace import Trace

X = torch.ones(256)  # 1 KiB
KIB = 1024


def held(trace: Trace) -> LiveMemory:
    return live_memory(whole(trace), find_storages(trace))


def test_a_result_is_held_to_its_last_use() -> None:
    def chain(x: Tensor) -> Tensor:
        return torch.exp(torch.sin(x.neg()))

    timeline = held(trace_of(chain, X)).timeline_bytes
    assert timeline == (2 * KIB, 3 * KIB, 3 * KIB)  # the input, what goes in, what comes out


def test_what_is_used_again_later_stays() -> None:
    def residual(x: Tensor) -> Tensor:
        kept = x.neg()
        return kept.sin().exp() + kept

    assert held(trace_of(residual, X)).timeline_bytes == (2 * KIB, 3 * KIB, 4 * KIB, 4 * KIB)


def test_views_and_in_place_writes_take_no_new_memory() -> None:
    def in_place(x: Tensor) -> Tensor:
        return x.neg().view(16, 16).t().mul_(2)

    assert set(held(trace_of(in_place, X)).timeline_bytes) == {2 * KIB}


def test_the_peak_says_when_and_what() -> None:
    def wide(x: Tensor) -> Tensor:
        return x.neg().repeat(8).sum() + 1

    peak = held(trace_of(wide, X)).peak
    assert (peak.total_bytes, peak.op) == (10 * KIB, "aten.repeat.default")
    assert (peak.alive[0].name, peak.alive[0].size_bytes) == ("aten.repeat.default", 8 * KIB)
    assert sum(row.size_bytes for row in peak.alive) + peak.not_listed_bytes == peak.total_bytes


def test_weights_are_held_from_the_start_and_equal_layers_share_a_row() -> None:
    model = nn.Sequential(OrderedDict(layers=nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(5)))))
    found = held(capture(model, torch.ones(1, 16)))
    assert found.peak.weights_bytes == 5 * KIB
    assert (found.peak.alive[0].name, found.peak.alive[0].count) == ("layers.*.weight", 5)
    assert found.timeline_bytes[0] >= 5 * KIB


def test_an_old_cache_is_given_up_when_the_new_one_is_made() -> None:
    peak = held(tiny_llama(cached=64)).peak
    layer = 2 * 2 * 65 * 4 * 4  # keys and values of one layer, with the new token
    assert peak.kv_cache_bytes < 3.5 * layer  # two layers, and one of them twice for a moment


class Layer(nn.Module):
    """Makes a table of 4 KiB in Python, and needs no more than a sum of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.inner(x + torch.tensor([[0.5] * 16] * 64).sum(0))
        return made


def test_what_code_makes_without_an_op_is_held_from_where_it_is_handed_over() -> None:
    for layers in (1, 2, 7):
        model = nn.Sequential(*(Layer() for _ in range(layers)))
        trace = capture(model, torch.ones(1, 16))
        found = price(trace).peak
        # Weights of all layers, the input, one table at a time with its sum, and what goes into the layer.
        assert found.total_bytes == layers * KIB + 4 * KIB + (64 + 64 + (64 if layers > 1 else 0))
        assert found.total_bytes == price(trace.written_out()).peak.total_bytes
        assert found.eager_bytes is not None
        assert found.eager_bytes >= found.total_bytes


def test_a_tensor_that_the_model_has_is_held_all_the_time() -> None:
    table = torch.ones(1024)

    def known(x: Tensor) -> Tensor:
        return (x + table.sum()).exp()

    assert (
        held(trace_of(known, X)).timeline_bytes[-1] == 4 * KIB + 3 * KIB
    )  # with the input, and what goes in and comes out


def test_a_trace_without_ops_has_only_what_was_there() -> None:
    empty = Trace(provenance=trace_of(torch.neg, X).provenance, modules=())
    assert held(empty).peak.total_bytes == 0
    assert held(empty).peak.operation_index == -1


def test_gradients_are_held_to_the_end_of_a_training_step() -> None:
    model = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(8)))
    weights = 8 * 64 * 64 * 4

    table = price(capture(model, torch.ones(1, 64), backward=True))

    assert table.timeline_bytes[-1] >= 2 * weights
    assert table.peak.total_bytes >= 2 * weights
    assert table.traffic.fused.written_bytes[Category.ACTIVATIONS] >= weights
    assert table.traffic.compulsory.written_bytes == {
        Category.WEIGHTS: weights, Category.KV_CACHE: 0, Category.ACTIVATIONS: 64 * 4
    }  # fmt: skip

from collections import OrderedDict

import torch
from torch import nn

from tests.formula.derive.benches import bench
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.formula.derive.observe import Moment, Place, peak_per_place
from torchstone.record.trace import Trace


def layers() -> Trace:
    net = nn.Sequential(OrderedDict(layers=nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 32), nn.Linear(32, 8))))
    return capture(net, torch.ones(5, 8))


def peak(moments: dict[Place, Moment]) -> int:
    return max(moment.total_bytes for moment in moments.values())


def test_the_fullest_moment_is_the_peak_that_cost_reports() -> None:
    trace = layers()
    moments = peak_per_place(trace, bench().lifetimes(trace))
    reported = price(trace).peak

    assert peak(moments) == reported.activations_bytes + reported.kv_cache_bytes
    assert {place[0] for place in moments} == {"layers.*"}
    assert all(sum(moment.parts.values()) == moment.total_bytes for moment in moments.values())


def test_an_inner_call_holds_what_it_was_given_and_what_it_makes() -> None:
    trace = layers()
    second = next(call.index for call in trace.module_calls if trace.modules[call.module].path == "layers.1")

    moments = peak_per_place(trace, bench().lifetimes(trace), second)

    assert peak(moments) == 4 * (5 * 64 + 5 * 32)
    assert {place[0] for place in moments} == {""}


def test_of_a_larger_tensor_an_inner_call_is_given_only_its_part() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.act((x + 1).chunk(2, dim=-1)[0])
            return made

    trace = capture(Half(), torch.ones(3, 10))

    assert peak(peak_per_place(trace, bench().lifetimes(trace), 1)) == 4 * (3 * 5 + 3 * 5)


def test_a_call_that_runs_nothing_has_no_moment() -> None:
    trace = capture(nn.Identity(), torch.ones(3))

    assert peak_per_place(trace, bench().lifetimes(trace)) == {}

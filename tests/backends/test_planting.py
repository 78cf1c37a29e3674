from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.backends.nets import seeded, two_layers
from torchstone.backends.faults import Plant, planted


def run(net: nn.Module, x: Tensor, **where: Any) -> Tensor:
    with torch.no_grad(), planted(net, [Plant(fault="nan", **where)]):
        result = net(x)
    assert isinstance(result, Tensor)
    return result


@pytest.mark.parametrize(
    ("where", "happens"),
    [
        ({}, True),
        ({"op": "aten.addmm.*"}, True),
        ({"op": "aten.conv*"}, False),
        ({"op": "addmm"}, True),
        ({"op": "mm"}, False),
        ({"shape": [3, 16]}, True),
        ({"shape": [3, 17]}, False),
        ({"module": "GELU"}, True),
        ({"module": "second"}, True),
        ({"module": "Conv2d"}, False),
        ({"op": "aten.addmm.*", "after": "aten.gelu.*"}, True),
        ({"op": "aten.gelu.*", "after": "aten.gelu.*"}, False),
        ({"op": "aten.addmm.*", "nth": 2}, True),
        ({"op": "aten.addmm.*", "nth": 3}, False),
        ({"op": "aten.gelu.*", "module": "Linear"}, False),
    ],
)
def test_a_fault_happens_where_it_is_planted_and_nowhere_else(where: dict[str, Any], happens: bool) -> None:  # noqa: FBT001 - a table
    module, x = two_layers()

    assert bool(run(module, x, **where).isnan().any()) is happens


def test_the_nth_call_is_counted_in_each_run_anew() -> None:
    module, x = two_layers()

    assert all(bool(run(module, x, op="aten.addmm.*", nth=2).isnan().any()) for _ in range(2))


class WritesInPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 1
        y.add_(1)
        return y


def test_an_op_that_writes_to_its_input_writes_the_wrong_values() -> None:
    module = WritesInPlace()
    with planted(module, [Plant(fault="wrong", op="aten.add_.*")]):
        assert not torch.equal(module(torch.ones(3)), torch.full((3,), 2.0))


def test_nothing_stays_behind_even_when_the_module_raises() -> None:
    module = seeded(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(RuntimeError, match="reported an error"), planted(module, [Plant(fault="raise")]):
        module(torch.ones(1, 2))

    assert not any(one._forward_hooks or one._forward_pre_hooks for one in module.modules())
    assert not module(torch.ones(1, 2)).isnan().any()

import torch
from torch import nn

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.record.cost import CostTable

X = torch.ones(2, 8)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x)) + x


def table_of(model: nn.Module, *, backward: bool = False) -> CostTable:
    return price(capture(model, X, backward=backward))


def test_an_op_belongs_to_the_innermost_module_running() -> None:
    table = table_of(nn.Sequential(Block(), Block()))
    by_path = {module.path: module for module in table.modules}
    assert by_path["0"].self_flops == 2 * 16
    assert by_path["0.inner"].self_flops == 2 * 2 * 8 * 8 + 16
    assert by_path["0"].flops == by_path["0"].self_flops + by_path["0.inner"].flops
    assert by_path[""].self_flops == 0


def test_self_costs_add_up_to_the_whole_with_the_backward_pass_too() -> None:
    for backward in (False, True):
        table = table_of(nn.Sequential(Block(), nn.LayerNorm(8), Block()), backward=backward)
        root = table.modules[0]
        assert sum(module.self_flops for module in table.modules) == root.flops == table.totals.flops
        assert sum(module.self_bytes_read for module in table.modules) == root.bytes_read == table.totals.bytes_read
        assert root.bytes_written == table.totals.bytes_written
        assert root.ops == table.totals.op_calls


def test_ops_classes_and_depths_add_up_to_the_same() -> None:
    table = table_of(nn.Sequential(Block(), Block()))
    assert sum(row.flops for row in table.ops) == table.totals.flops
    assert sum(row.self_flops for row in table.classes) == table.totals.flops
    assert sum(row.self_flops for row in table.depths) == table.totals.flops
    assert [row.name for row in table.depths] == ["0", "1", "2"]
    assert table.classes[0].name.endswith("Linear")
    assert table.ops[0].op == "aten.addmm.default"


def test_a_module_called_twice_costs_twice() -> None:
    shared = nn.Linear(8, 8)
    once, twice = table_of(nn.Sequential(shared)), table_of(nn.Sequential(shared, shared))
    assert twice.totals.flops == 2 * once.totals.flops

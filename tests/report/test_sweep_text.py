import msgspec
import torch
from torch import nn

from tests.cost.devices import device
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.roofline import predict
from torchstone.record.cost import CostTable
from torchstone.report.cost_text import sweep_csv, sweep_text


def costs(batch: int) -> CostTable:
    trace = capture(nn.Linear(8, 8), torch.ones(batch, 8))
    table = price(trace)
    return msgspec.structs.replace(table, prediction=predict(trace, table, device()))


def test_each_value_has_a_line_and_more_flops_a_longer_bar() -> None:
    lines = sweep_text("batch_size", [(1, costs(1)), (1024, costs(1024))]).splitlines()
    assert lines[0].split()[:3] == ["batch_size", "FLOPs", "matmul"]
    assert lines[1].count("█") == 1
    assert lines[2].count("█") == 24
    assert "yes" in lines[1]


def test_equal_values_have_equal_bars() -> None:
    lines = sweep_text("batch_size", [(1, costs(2)), (1, costs(2))]).splitlines()
    assert lines[1] == lines[2]


def test_a_parameter_that_changes_nothing_is_told() -> None:
    assert "seq_len has no effect" in sweep_text("seq_len", [(1, costs(2)), (2, costs(2))])
    assert "has no effect" not in sweep_text("batch_size", [(1, costs(1)), (2, costs(2))])


def test_a_spreadsheet_has_a_line_for_each_value() -> None:
    lines = sweep_csv("batch_size", [(1, costs(1)), (2, costs(2))]).splitlines()
    assert lines[0].startswith("batch_size,flops,matmul_flops,")
    assert [line.split(",")[2] for line in lines[1:]] == ["128", "256"]
    assert lines[2].endswith(",True")

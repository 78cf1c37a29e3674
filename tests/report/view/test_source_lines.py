from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor, nn

from torchstone.capture.capture_model import capture
from torchstone.cost.price_trace import price
from torchstone.models.load_model import load
from torchstone.record.codec import save
from torchstone.report.section import ReportFolder
from torchstone.report.sections import source
from torchstone.report.view.source_lines import function_rows


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(8, 32)
        self.narrow = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.wide(x)
        return self.narrow(hidden.view(-1, 32))


def test_a_line_costs_what_its_ops_cost() -> None:
    trace = capture(Net(), torch.zeros(4, 8))
    (forward,) = function_rows(trace, price(trace).signatures)

    costs = {line.text.strip(): line.amounts for line in forward.lines}
    wide, narrow = costs["hidden = self.wide(x)"], costs["return self.narrow(hidden.view(-1, 32))"]

    assert costs["def forward(self, x: Tensor) -> Tensor:"] is None
    assert wide is not None
    assert narrow is not None
    assert wide.flops == 2 * 4 * 8 * 32 + 4 * 32  # with the bias
    assert wide.made_bytes == 4 * 32 * 4
    assert narrow.made_bytes == 4 * 8 * 4  # the view has no memory of its own
    assert forward.amounts.flops == wide.flops + narrow.flops
    assert [len(line.modules) for line in forward.lines if line.amounts is not None] == [1, 1]


@pytest.mark.parametrize("model", ["tiny:llama", "tiny:t5"])
def test_the_forward_method_of_the_model_costs_what_the_model_costs(model: str) -> None:
    loaded = load(model)
    trace = capture(loaded.model, loaded.inputs)
    table = price(trace)
    name = f"{type(loaded.model).__name__}.forward"

    (whole,) = [row for row in function_rows(trace, table.signatures) if row.name == name]

    outside = table.totals.op_calls - whole.amounts.ops
    assert 0 <= outside <= 5  # ops of the library around forward
    assert whole.amounts.flops <= table.totals.flops
    assert whole.amounts.flops >= 0.999 * table.totals.flops


def test_there_is_no_tab_where_lines_are_unknown_or_not_to_be_named(tmp_path: Path) -> None:
    trace = capture(Net(), torch.zeros(4, 8))
    save(tmp_path / "trace.json", trace)

    view = source.build(ReportFolder(tmp_path))
    assert view is not None
    assert "flops" not in view.document["functions"][0]  # without costs
    assert source.build(ReportFolder(tmp_path, source=False)) is None
    save(tmp_path / "cost.json", price(trace))
    priced = source.build(ReportFolder(tmp_path))
    assert priced is not None
    assert priced.document["functions"][0]["flops"] == price(trace).totals.flops


def test_a_new_tensor_of_an_unknown_size_is_counted_and_not_taken_for_nothing(tmp_path: Path) -> None:
    trace = capture(Net(), torch.zeros(4, 8))
    unknown = [msgspec.structs.replace(one, dtype="mystery") for one in trace.recorded_tensors.specs]
    tensors = msgspec.structs.replace(trace.recorded_tensors, specs=tuple(unknown))
    save(tmp_path / "trace.json", msgspec.structs.replace(trace, recorded_tensors=tensors))
    view = source.build(ReportFolder(tmp_path))

    assert view is not None
    (forward,) = function_rows(msgspec.structs.replace(trace, recorded_tensors=tensors), None)
    assert (forward.amounts.made_bytes, forward.amounts.unsized) == (0, 2)
    assert any("The size of 2 new tensors is not known" in note for note in view.notes)
    (lines,) = (table for table in view.tables if table.name == "source_lines")
    (unsized,) = (one for one in lines.columns if one.name == "unsized")
    assert list(unsized.values).count(1) == 2

import json
from pathlib import Path

import pytest

from torchstone.cli.main import run

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))
    def forward(self, x):
        return torch.relu(self.layers(x)){tail}

def load_model():
    return Net(), torch.ones(2, 8)
"""

CUSTOM = """
@torch.library.custom_op("costtest::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def _(x):
    return torch.empty_like(x)
"""

PRICES = """
from torchstone.cost import Price, register_price

@register_price("costtest::twice")
def twice(call):
    return Price(flops=call.output_specs[0].elements)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(NET.format(tail=""))
    return f"{path}::load_model"


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(["cost", *arguments, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_document_has_its_fixed_keys(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, net)
    totals, modules = found["totals"], found["modules"]
    assert isinstance(totals, dict)
    assert isinstance(modules, list)
    assert found["schema"] == "torchstone/cost/1"
    assert (totals["flops"], totals["matmul_flops"]) == (3 * (256 + 16) + 16, 3 * 256)
    assert totals["parameter_bytes"] == 3 * 72 * 4
    assert {"path", "class", "flops", "self_flops", "bytes_read", "bytes_written"} <= modules[0].keys()
    assert found["unpriced"] == {}


def test_the_switches_are_recorded_with_the_numbers(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, net, "--count", "macs", "--causal", "half")
    totals, conventions = found["totals"], found["conventions"]
    assert isinstance(totals, dict)
    assert isinstance(conventions, dict)
    assert totals["matmul_flops"] == 3 * 128
    assert (conventions["multiply_add"], conventions["causal"]) == (1, "half")


def test_the_tables_fold_layers_and_name_the_peak(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", net]) == 0
    shown = capsys.readouterr().out
    assert "3 x Linear" in shown
    assert "held at the peak" in shown
    assert "0 without a price" in shown
    assert run(["cost", net, "--no-fold", "--filter", "linear"]) == 0
    assert "layers.2" in capsys.readouterr().out


@pytest.mark.parametrize(("by", "word"), [("op", "aten.addmm.default"), ("class", "Linear"), ("depth", "depth")])
def test_the_first_table_can_be_by_op_class_or_depth(
    net: str, capsys: pytest.CaptureFixture[str], by: str, word: str
) -> None:
    assert run(["cost", net, "--by", by]) == 0
    assert word in capsys.readouterr().out


def test_a_folder_holds_the_trace_and_the_costs_and_is_priced_again_alike(
    net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    first = document(capsys, net, "--dir", str(folder), "--csv", str(tmp_path / "cost.csv"))
    assert json.loads((folder / "cost.json").read_text()) == first
    assert document(capsys, str(folder)) == first
    lines = (tmp_path / "cost.csv").read_text().splitlines()
    assert lines[0].startswith("path,class,flops")
    assert len(lines) == 1 + 5


def test_an_op_without_a_price_is_named_and_strict_makes_it_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(NET.format(tail=" + torch.ops.costtest.twice(x)").replace("class Net", f"{CUSTOM}\nclass Net", 1))
    assert run(["cost", f"{path}::load_model"]) == 0
    assert "in no total: costtest.twice.default (1 x)" in capsys.readouterr().out
    assert run(["cost", f"{path}::load_model", "--strict"]) == 1
    assert "no price for costtest.twice.default" in capsys.readouterr().err

    prices = tmp_path / "prices.py"
    prices.write_text(PRICES)
    from torchstone.cost.registry import forget_price

    try:
        assert run(["cost", f"{path}::load_model", "--strict", "--prices", str(prices)]) == 0
    finally:
        forget_price("costtest::twice")


def test_a_prices_file_that_cannot_be_used_is_wrong_input(
    net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0")
    assert run(["cost", net, "--prices", str(broken)]) == 2
    assert "stops with ZeroDivisionError" in capsys.readouterr().err
    assert run(["cost", net, "--prices", str(tmp_path / "none.py")]) == 2
    assert "cannot read" in capsys.readouterr().err

import pytest
import torch
from torch import nn

from torchstone.cli.formula_bench import make_bench
from torchstone.errors import MissingExtraError


def test_what_is_measured_is_what_cost_counts() -> None:
    trace, table = make_bench("tests").measure(nn.Linear(8, 4, bias=False), (torch.zeros(3, 8),))

    assert table.totals.flops == 2 * 3 * 8 * 4
    assert make_bench("tests").price(trace.ops[1].signature)[0] == table.totals.flops


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(MissingExtraError, match=r"torchstone\[torch\]"):
        make_bench("deriving a formula")

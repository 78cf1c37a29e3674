"""The page that follows one op shows what the commands on it give."""

from pathlib import Path

import pytest

from tests.cli.programs import EXAMPLE
from torchstone.capture import capture
from torchstone.cli.main import run
from torchstone.cost import price
from torchstone.models import load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-it-works" / "one-op.md").read_text(encoding="utf-8")
MODULE = "blocks.0.attention.qkv"


def test_the_costs_of_the_op_are_those_of_the_page() -> None:
    trace = capture(*load(EXAMPLE))
    costs = price(trace)
    (row,) = [
        call.index for call in trace.ops if (call.op, trace.module_path_of(call)) == ("aten.addmm.default", MODULE)
    ]
    cost = costs.signatures[trace.ops.signature_of[row]]
    inclusive = {module.path: module.flops for module in costs.modules}

    figures = [cost.flops, cost.matmul_flops, cost.bytes_read, cost.bytes_written]
    figures += [inclusive["blocks.0.attention"], costs.totals.flops, costs.timeline_bytes[row], costs.peak.total_bytes]
    assert [figure for figure in figures if f"{figure:,}" not in PAGE] == []
    assert f"{trace.provenance.reused_ops} of the {len(trace.ops)} op calls" in PAGE


def test_the_configuration_has_the_key_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", EXAMPLE, "--quiet"]) == 0
    assert run(["ops", "aten.addmm.default"]) == 0

    assert "k1-2d05714b42a7" in PAGE
    assert "k1-2d05714b42a7  aten.addmm.default  6 calls" in capsys.readouterr().out

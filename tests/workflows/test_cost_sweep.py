from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.folders import folder_of
from tests.report.traces import transformer
from torchstone.cli.main import run
from torchstone.errors import EXIT_FINDINGS, InputError
from torchstone.record.codec import load
from torchstone.record.cost import CostSweep
from torchstone.report.section import ReportFolder
from torchstone.report.sections.cost_sweep import build
from torchstone.workflows.cost import CostRequest, PricingOptions, cost_model, price_trace
from torchstone.workflows.cost_sweep import CostSweepRequest, sweep_cost
from torchstone.workflows.model_source import ModelRequest

TINY = CostRequest(model=ModelRequest(model="tiny:llama"), pricing=PricingOptions(hardware="n150"))


def test_each_size_costs_what_it_costs_alone() -> None:
    outcome = sweep_cost(CostSweepRequest(cost=TINY, sweep="seq_len=8,16"))

    sized = replace(TINY.model, options=replace(TINY.model.options, seq_len=16))
    value, table = outcome.points[1]
    alone = cost_model(replace(TINY, model=sized))
    assert value == 16
    assert table == price_trace(alone.trace, TINY.pricing)  # its largest batch is that of one capture
    assert table.totals == alone.table.totals
    assert not outcome.failed
    assert outcome.unpriced == frozenset()


def test_the_record_has_the_totals_of_each_size() -> None:
    outcome = sweep_cost(CostSweepRequest(cost=TINY, sweep="batch_size=1,2"))
    record = outcome.record

    assert record.parameter == "batch_size"
    assert [point.value for point in record.points] == [1, 2]
    assert [point.totals for point in record.points] == [table.totals for _, table in outcome.points]
    assert all(point.predicted_s for point in record.points)


@pytest.mark.parametrize(
    ("request_for_one_size", "option"),
    [
        (replace(TINY, compare_with="fvcore"), "--compare-with"),
        (replace(TINY, pricing=PricingOptions(devices=2)), "--tp"),
    ],
    ids=["--compare-with", "--tp"],
)
def test_an_option_for_one_size_is_refused(request_for_one_size: CostRequest, option: str) -> None:
    with pytest.raises(InputError, match=f"{option} works on one size"):
        sweep_cost(CostSweepRequest(cost=request_for_one_size, sweep="seq_len=8..16"))


def test_a_size_at_which_the_model_fails_has_no_cost_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """tiny:bert has 512 positions: what ran before the failure is not what the model costs."""
    words = ["cost", "tiny:bert", "--sweep", "seq_len=256,1024", "--hardware", "n150", "--csv", str(tmp_path / "x.csv")]
    assert run([*words, "--dir", str(tmp_path / "out")]) == EXIT_FINDINGS

    shown = capsys.readouterr().out
    (failing,) = (line for line in shown.splitlines() if line.strip().startswith("1,024"))
    assert failing.split() == ["1,024", *["-"] * 8, "fails"]
    assert "note  seq_len = 1,024: the forward pass fails: " in shown
    assert (tmp_path / "x.csv").read_text(encoding="utf-8").splitlines()[-1] == "1024" + "," * 9
    first, last = load(tmp_path / "out" / "cost_sweep.json", CostSweep).points
    assert (first.failure, bool(last.failure)) == ("", True)
    view = build(ReportFolder(tmp_path / "out"))
    assert view.banner is not None
    assert view.banner.text == "The forward pass fails at seq_len 1,024"
    assert view.cards[0].detail == "seq_len 256 to 256"
    columns = {one.name: list(one.values) for one in view.tables[0].columns}
    assert [columns[name][1] for name in ("flops", "fused", "peak", "predicted", "fits")] == [*[None] * 4, "fails"]
    assert columns["flops"][0] == first.totals.flops


def test_a_saved_trace_has_one_size(tmp_path: Path) -> None:
    saved = CostRequest(model=ModelRequest(model=str(folder_of(transformer(1), tmp_path))))

    with pytest.raises(InputError, match="saved trace of one size"):
        sweep_cost(CostSweepRequest(cost=saved, sweep="seq_len=8..16"))

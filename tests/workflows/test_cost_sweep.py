from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.folders import folder_of
from tests.report.traces import transformer
from torchstone.errors import InputError
from torchstone.workflows.cost import CostRequest, PricingOptions, cost_model
from torchstone.workflows.cost_sweep import CostSweepRequest, sweep_cost
from torchstone.workflows.model_source import ModelRequest

TINY = CostRequest(model=ModelRequest(model="tiny:llama"), pricing=PricingOptions(hardware="n150"))


def test_each_size_costs_what_it_costs_alone() -> None:
    outcome = sweep_cost(CostSweepRequest(cost=TINY, sweep="seq_len=8,16"))

    sized = replace(TINY.model, options=replace(TINY.model.options, seq_len=16))
    assert outcome.points[1] == (16, cost_model(replace(TINY, model=sized)).table)
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


def test_a_saved_trace_has_one_size(tmp_path: Path) -> None:
    saved = CostRequest(model=ModelRequest(model=str(folder_of(transformer(1), tmp_path))))

    with pytest.raises(InputError, match="saved trace of one size"):
        sweep_cost(CostSweepRequest(cost=saved, sweep="seq_len=8..16"))

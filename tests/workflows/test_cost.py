from pathlib import Path
from typing import get_args

import msgspec
import pytest
from torch import nn, ones

from tests.cost.calls import trace_of
from torchstone.cost import price
from torchstone.cost.optimizer import OPTIMISERS
from torchstone.errors import InputError
from torchstone.models.inputs import InputOptions
from torchstone.record.codec import load
from torchstone.record.cost import Conventions, CostTable
from torchstone.workflows.cost import (
    CostRequest,
    Optimizer,
    PricingOptions,
    cost_model,
    logits_keywords,
    price_trace,
    register_prices,
    write_costs,
)
from torchstone.workflows.model_source import ModelRequest

TINY = ModelRequest(model="tiny:llama", options=InputOptions(seq_len=8))


def test_a_model_is_priced_with_roofline_devices_and_optimizer_in_one_call() -> None:
    training = ModelRequest(model="tiny:llama", options=InputOptions(seq_len=8), backward=True)
    options = PricingOptions(hardware="n150", devices=4, optimizer="adamw")

    table = cost_model(CostRequest(model=training, pricing=options)).table

    assert table.prediction is not None
    assert table.prediction.hardware.name == "n150"
    assert table.tensor_parallel is not None
    assert table.tensor_parallel.devices == 4
    assert table.optimiser is not None
    assert table.optimiser.state_bytes == 2 * table.totals.parameter_bytes


def test_a_trace_in_hand_is_priced_as_its_model_is() -> None:
    outcome = cost_model(CostRequest(model=TINY, pricing=PricingOptions(hardware="n150")))

    priced = price_trace(outcome.trace, PricingOptions(hardware="n150"))
    assert outcome.table.prediction is not None
    assert msgspec.structs.replace(priced, prediction=None) == msgspec.structs.replace(outcome.table, prediction=None)
    assert priced.prediction is not None
    assert priced.prediction.total_s == outcome.table.prediction.total_s
    assert outcome.table.prediction.largest_batch_verified  # which needs the model


def test_without_options_a_trace_costs_what_the_stage_says() -> None:
    trace = trace_of(nn.Linear(4, 4), ones(2, 4))

    assert price_trace(trace) == price(trace)


def test_the_conventions_record_the_request() -> None:
    decode = ModelRequest(model="tiny:llama", options=InputOptions(phase="decode", cache_len=5))
    macs = PricingOptions(conventions=Conventions(multiply_add=1))

    conventions = cost_model(CostRequest(model=decode, pricing=macs, logits="last")).table.conventions

    assert (conventions.multiply_add, conventions.cache_len, conventions.logits) == (1, 5, "last")


def test_an_optimizer_needs_a_backward_pass() -> None:
    with pytest.raises(InputError, match="add --backward"):
        price_trace(trace_of(nn.Linear(4, 4), ones(2, 4)), PricingOptions(optimizer="sgd"))


def test_values_that_the_command_line_refuses_are_refused_from_python() -> None:
    with pytest.raises(InputError, match="over 2 devices or more, not 1"):
        PricingOptions(devices=1)
    with pytest.raises(InputError, match="unknown optimizer 'lion'; choose from sgd, momentum, adam, adamw"):
        PricingOptions(optimizer="lion")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="--logits must be all or last, not 'first'"):
        CostRequest(model=TINY, logits="first")  # type: ignore[arg-type]


def test_every_optimizer_of_the_stage_can_be_requested() -> None:
    assert set(get_args(Optimizer)) == set(OPTIMISERS)


def test_logits_are_asked_for_by_the_keyword_of_transformers() -> None:
    assert logits_keywords(None) == {}
    assert logits_keywords("last") == {"logits_to_keep": 1}
    assert logits_keywords("all") == {"logits_to_keep": 0}


def test_a_prices_file_can_be_requested_again(tmp_path: Path) -> None:
    from torchstone.cost.registry import forget_price

    prices = tmp_path / "prices.py"
    prices.write_text(
        "from torchstone.cost import Price, register_price\n"
        "@register_price('workflowtest::twice')\n"
        "def twice(call): return Price(flops=1)\n"
    )
    try:
        register_prices(prices)
        register_prices(prices)
    finally:
        forget_price("workflowtest::twice")


def test_the_folder_holds_trace_costs_and_report(tmp_path: Path) -> None:
    outcome = cost_model(CostRequest(model=TINY))

    write_costs(tmp_path, outcome)

    assert load(tmp_path / "cost.json", CostTable) == outcome.table
    assert {"trace.json", "unique_modules.json", "report.html"} <= {path.name for path in tmp_path.iterdir()}
    assert cost_model(CostRequest(model=ModelRequest(model=str(tmp_path)))) == outcome

import msgspec
import torch
from torch import nn

from tests.cost.devices import device
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.roofline import predict
from torchstone.cost.scaling import optimiser_cost, split_over
from torchstone.report.cost_text import prediction_text

TRACE = capture(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)), torch.ones(4, 8))
COSTS = price(TRACE)


def test_nothing_is_said_that_was_not_asked_for() -> None:
    assert prediction_text(COSTS, TRACE, 5) == ""


def test_a_prediction_is_called_one_and_names_bound_and_source() -> None:
    table = msgspec.structs.replace(COSTS, prediction=predict(TRACE, COSTS, device()))
    text = prediction_text(table, TRACE, 5)
    assert "aten.addmm.default" in text
    assert "bound by memory" in text
    assert "made up; a roofline, not a measurement" in text
    assert "yes:" in text


def test_a_split_and_an_optimiser_have_their_lines() -> None:
    table = msgspec.structs.replace(
        COSTS, tensor_parallel=split_over(TRACE, COSTS, 2), optimiser=optimiser_cost(TRACE, "adamw")
    )
    text = prediction_text(table, TRACE, 5)
    assert "in 1 all-reduce" in text
    assert "adamw over 552 parameters" in text

import pytest
import torch
from torch import Tensor, nn

from torchstone.capture.fingerprint import exchanged, original_items


def test_everything_that_asks_for_a_parameter_gets_what_it_was_exchanged_for() -> None:
    model, asked = nn.Linear(2, 2), []
    twins = {id(held): nn.Parameter(held * 2) for held in model.parameters()}

    def twin(tensor: Tensor) -> Tensor:
        asked.append(tensor)
        return twins[id(tensor)]

    weight = model.weight
    with exchanged([model], twin):
        assert asked == [], "nothing is exchanged before somebody asks"
        assert model.weight is model._parameters["weight"] is model._parameters.get("weight") is twins[id(weight)]
        assert list(model.parameters()) == list(model._parameters.values()) == list(twins.values())
        assert dict(model.named_parameters()).keys() == dict(model._parameters.items()).keys()
        assert model._parameters.get("other", 3) == 3
        assert dict(original_items(model._parameters))["weight"] is weight

    assert model.weight is weight


def test_a_parameter_that_is_not_there_stays_away() -> None:
    model = nn.Linear(2, 2, bias=False)

    with exchanged([model], torch.clone):
        assert model._parameters["bias"] is None
        assert model(torch.ones(1, 2)).shape == (1, 2)


def test_everything_is_back_after_an_error() -> None:
    model = nn.BatchNorm1d(2)
    held, buffers = model._parameters, model._buffers

    with pytest.raises(ZeroDivisionError), exchanged([model], torch.clone):
        _ = 1 // 0

    assert model._parameters is held
    assert model._buffers is buffers

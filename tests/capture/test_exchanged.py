import copy

import pytest
import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.capture.fingerprint import exchanged


def _kept(tensor: Tensor) -> None:
    pytest.fail(f"{tensor} is still held")


def test_everything_that_asks_for_a_parameter_gets_what_it_was_exchanged_for() -> None:
    model, asked = nn.Linear(2, 2), []
    twins = {id(held): nn.Parameter(held * 2) for held in model.parameters()}

    def twin(tensor: Tensor) -> Tensor:
        asked.append(tensor)
        return twins[id(tensor)]

    weight = model.weight
    with exchanged([model], twin, _kept):
        assert asked == [], "nothing is exchanged before somebody asks"
        assert model.weight is model._parameters["weight"] is model._parameters.get("weight") is twins[id(weight)]
        assert list(model.parameters()) == list(model._parameters.values()) == list(twins.values())
        assert dict(model.named_parameters()).keys() == dict(model._parameters.items()).keys()
        assert model._parameters.get("other", 3) == 3
        assert dict(dict.items(model._parameters))["weight"] is weight

    assert model.weight is weight


def test_a_parameter_that_is_not_there_stays_away() -> None:
    model = nn.Linear(2, 2, bias=False)

    with exchanged([model], torch.clone, _kept):
        assert model._parameters["bias"] is None
        assert model(torch.ones(1, 2)).shape == (1, 2)


def test_everything_is_back_after_an_error() -> None:
    model = nn.BatchNorm1d(2)
    held, buffers = model._parameters, model._buffers

    with pytest.raises(ZeroDivisionError), exchanged([model], torch.clone, _kept):
        _ = 1 // 0

    assert model._parameters is held
    assert model._buffers is buffers


def test_only_what_no_module_holds_any_more_is_let_go() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    weight, bias = first.weight, first.bias
    second.weight = weight
    gone: list[Tensor] = []

    with exchanged([first, second], lambda tensor: tensor, gone.append):
        first.weight = first.weight
        first.weight = nn.Parameter(torch.ones(2, 2))
        assert gone == []
        del second.weight
        del first.bias
        assert [id(one) for one in gone] == [id(weight), id(bias)]

    assert first.weight is second.weight is weight


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")  # torch asks whether there are data
@pytest.mark.parametrize("mode", ["fake", "meta", "cpu"])
def test_a_model_may_copy_its_modules_while_it_runs(mode: str) -> None:
    class Teacher(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return copy.deepcopy(self.student)(x) - copy.copy(self.student)(x)

    trace = capture(Teacher(), torch.rand(2, 4), mode)

    ops = [trace.ops.signatures[number].op for number in trace.ops.signature_of]
    assert trace.failure is None
    assert ops.count("aten.addmm.default") == 2
    assert not [one for one in trace.recorded_tensors.external if one.kind == "constant"]

import torch
from torch import nn

from tests.reference.nets import TwoLayers
from torchstone.models.inputs import Inputs
from torchstone.reference.make import Request, make_golden
from torchstone.reference.verify import replay


def test_golden_inputs_take_the_place_of_those_given() -> None:
    model = TwoLayers()
    golden = make_golden(model, torch.randn(2, 4), Request(watched=("first",)))
    others = Inputs(args=(torch.zeros(2, 4),), origin="test")

    done = replay(golden, model, others)

    assert done.comparison.passed
    assert done.misfits == ()
    assert others.args[0].tolist() == torch.zeros(2, 4).tolist()


def test_another_model_is_found_out_at_its_first_wrong_module() -> None:
    golden = make_golden(TwoLayers(), torch.randn(2, 4), Request(watched=("first", "second")))
    other = TwoLayers()
    nn.init.normal_(other.second.weight, std=3)

    found = replay(golden, other, Inputs(args=(torch.zeros(2, 4),), origin="test")).comparison

    assert found.first_wrong == "modules/second/outputs"


def test_inputs_that_do_not_fit_are_told() -> None:
    golden = make_golden(TwoLayers(), torch.randn(2, 4))

    done = replay(golden, TwoLayers(), Inputs(args=(torch.zeros(3, 4),), origin="test"))

    assert done.misfits == ("inputs/x",)
    assert not done.comparison.passed

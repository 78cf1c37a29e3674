import torch
from torch import nn

from torchstone.capture import capture
from torchstone.cost.optimiser_step import OPTIMISERS, optimiser_cost


def test_adam_holds_two_moments_of_each_trainable_parameter() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].requires_grad_(requires_grad=False)
    found = optimiser_cost(capture(model, torch.ones(1, 4)), "adamw")
    assert (found.parameters, found.gradient_bytes, found.state_bytes) == (20, 80, 160)
    assert found.flops == 14 * 20
    assert (found.bytes_read, found.bytes_written) == (80 + 80 + 160, 80 + 160)


def test_moments_are_float32_whatever_the_weights_are() -> None:
    model = nn.Linear(4, 4, bias=False).to(torch.bfloat16)
    found = optimiser_cost(capture(model, torch.ones(1, 4, dtype=torch.bfloat16)), "momentum")
    assert (found.gradient_bytes, found.state_bytes) == (32, 64)


def test_plain_descent_holds_nothing() -> None:
    assert optimiser_cost(capture(nn.Linear(4, 4), torch.ones(1, 4)), "sgd").state_bytes == 0
    assert set(OPTIMISERS) == {"sgd", "momentum", "adam", "adamw"}

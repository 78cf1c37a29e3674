import pytest
import torch
from torch import nn

from tests.cost.calls import cost_of
from torchstone.capture import capture
from torchstone.cost.scaling import OPTIMISERS, optimiser_cost
from torchstone.record.cost import Kind


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


@pytest.mark.parametrize(("name", "switches"), [("SGD", {}), ("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {})])
def test_a_step_costs_what_torch_does_in_one_kernel(name: str, switches: dict[str, float]) -> None:
    layer = nn.Linear(100, 100, bias=False)
    found = optimiser_cost(capture(layer, torch.ones(1, 100)), "momentum" if switches else name.lower())
    layer.weight.grad = torch.ones(100, 100)
    optimiser = getattr(torch.optim, name)(layer.parameters(), lr=0.1, fused=True, **switches)
    optimiser.step()

    def step(x: torch.Tensor) -> torch.Tensor:
        optimiser.step()
        return x.view(1)

    signatures = cost_of(step, torch.ones(1)).signatures
    fused = next(cost for cost in signatures if cost.kind is Kind.OPTIMISER and cost.flops >= 10_000)
    assert found.flops == fused.flops
    assert found.bytes_written == fused.bytes_written
    assert 0 <= fused.bytes_read - found.bytes_read <= 4  # the number of the step

"""Ops in place that write what comes from weights to tensors with known values give what they were given."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.cost import price


def copied(y: Tensor, x: Tensor) -> Tensor:
    buffer = torch.zeros(4)
    given = buffer.copy_(y.mean(0))
    return given + buffer if given is buffer else x


def added(y: Tensor, x: Tensor) -> Tensor:
    buffer = torch.zeros(3, 4)
    buffer.index_add_(0, torch.tensor([0, 2]), y)
    buffer[1] = x[0]
    return buffer.view(-1)


def out(y: Tensor, x: Tensor) -> Tensor:
    buffer = torch.empty(0)
    given = torch.mul(y, 2, out=buffer)
    return given * x if given is buffer else x


def out_and_in_place(y: Tensor, x: Tensor) -> Tensor:
    buffer = torch.zeros(2, 4)
    torch.add(y, 1, out=buffer)
    return buffer.mul_(y).addcmul_(y, x)


def through_a_view(y: Tensor, x: Tensor) -> Tensor:
    buffer = torch.zeros(2, 4)
    row = buffer[0]
    row.add_(y[0])
    row.unsqueeze_(0)
    return buffer + row + x


def squeezed(y: Tensor, x: Tensor) -> Tensor:
    buffer = torch.zeros(2, 4, 1)
    buffer.add_(y[..., None])
    buffer.squeeze_(-1)
    return buffer + x if buffer.dim() == 2 else x


def transposed(y: Tensor, x: Tensor) -> Tensor:
    buffer = torch.zeros(2, 4)
    buffer.add_(y).t_()
    return buffer @ x


def resized(y: Tensor, _x: Tensor) -> Tensor:
    buffer = torch.zeros(2, 4)
    buffer.add_(y)
    buffer.resize_(8)
    return buffer * 2


Step = Callable[[Tensor, Tensor], Tensor]


class Writes(nn.Module):
    def __init__(self, step: Step) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self.linear(x), x)


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize(
    "step",
    [copied, added, out, out_and_in_place, through_a_view, squeezed, transposed, resized],
    ids=lambda one: one.__name__,
)
def test_tensors_are_those_of_a_real_run(step: Step, *, reuse: bool) -> None:
    fake, real = (capture(Writes(step).eval(), torch.rand(2, 4), mode, reuse=reuse) for mode in ("fake", "cpu"))

    for name in ("inputs", "outputs", "writes"):
        assert getattr(fake.ops, name) == getattr(real.ops, name), name
    ops = [[one.signatures[number].op for number in one.signature_of] for one in (fake.ops, real.ops)]
    assert ops[0] == ops[1]
    assert fake.failure is real.failure is None
    assert fake.eager_memory is not None
    assert real.eager_memory is not None
    assert fake.eager_memory.peak_bytes == real.eager_memory.peak_bytes
    assert price(fake).totals == price(real).totals

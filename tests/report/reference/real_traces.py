"""A captured model whose ops all have a price, and what the live model says of itself."""

import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.record.trace import Trace

WIDTH, BATCH, LAYERS = 8, 2, 3


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(x).relu()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.norm = nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(x)))


def net() -> nn.Module:
    return Net().eval()


def net_trace() -> Trace:
    return capture(net(), torch.ones(BATCH, WIDTH), "cpu")

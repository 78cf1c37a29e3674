"""The model of the tutorial: a small network with an op of its own, whose fake kernel does not tell the truth."""

import torch
from torch import Tensor, nn


@torch.library.custom_op("shop::running_max", mutates_args=())
def running_max(x: Tensor) -> Tensor:
    return torch.cummax(x, dim=-1).values.to(torch.float64)


@running_max.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Score(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) + running_max(x)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.score = Score(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(x + self.down(torch.relu(self.up(x)))).to(x.dtype)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(32) for _ in range(4))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def load_model() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


def get_inputs() -> Tensor:
    return torch.linspace(-1, 1, 64 * 32).reshape(64, 32)

"""Small models for tests of golden data, each with one thing that makes it hard."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class TwoLayers(nn.Module):
    """Two linear layers; the middle is changed in place after the first gave it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu_())


class Noisy(nn.Module):
    """Adds random numbers: the same ones with the same seed."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class Counting(nn.Module):
    """Gives something else at each call, whatever the seed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.calls


class Twice(nn.Module):
    """Calls the same module two times."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.norm(x) + 1)


@dataclass
class Answer:
    """What a model with several outputs gives."""

    logits: Tensor
    states: list[Tensor]
    name: str = "answer"


class ManyOutputs(nn.Module):
    """Gives an object with a list inside."""

    def forward(self, x: Tensor, *, scale: float = 2.0) -> Answer:
        return Answer(logits=x * scale, states=[x, x + 1])


class Growing(nn.Module):
    """Writes to its input and to a buffer."""

    counted: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("counted", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.counted += 1
        return x.add_(self.counted)


class Replacing(Growing):
    """Puts another tensor where its buffer was."""

    def forward(self, x: Tensor) -> Tensor:
        self.counted = self.counted + 1
        return x + self.counted


class DrawsInNumpy(nn.Module):
    """Adds a number that numpy draws."""

    def forward(self, x: Tensor) -> Tensor:
        return x + float(np.random.rand())


class Raises(nn.Module):
    """Cannot run."""

    def forward(self, x: Tensor) -> Any:
        msg = f"no such kernel for {x.dtype}"
        raise RuntimeError(msg)

"""Modules whose cost depends on their sizes in ways that no polynomial through odd sizes shows."""

from collections.abc import Callable, Mapping

import torch
from torch import nn

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Twofold(nn.Module):
    """One of two layers, chosen by the length."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.narrow = nn.Linear(width, width)
        self.wide = nn.Linear(width, 2 * width)


class EvenOdd(Twofold):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.narrow(x) if x.shape[1] % 2 == 0 else self.wide(x)


class MultipleOf64(Twofold):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.narrow(x) if x.shape[1] % 64 == 0 else self.wide(x)


class Above16(Twofold):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.narrow(x) if x.shape[1] > 16 else torch.relu(self.wide(x))


class PlainNumber(Twofold):
    """Reads the length as a plain number, so that a run with symbolic sizes does not see the comparison."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.narrow(x) if int(x.shape[1]) % 3 == 0 else self.wide(x)


class Strided(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x))


class Recurrent(nn.Module):
    """A loop over the length."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x[:, 0]
        for step in range(x.shape[1]):
            state = torch.tanh(self.cell(state) + x[:, step])
        return state


class PerElement(nn.Module):
    """The cost depends on the digits of the length: no formula is right, and none may be kept."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(sum(int(digit) for digit in str(int(x.shape[1])))):
            x = self.layer(x)
        return x


def of_tokens(kind: Callable[[int], nn.Module]) -> Callable[[Mapping[str, int]], Made]:
    """A recipe with batch, length and width."""

    def make(sizes: Mapping[str, int]) -> Made:
        width = sizes["hidden_size"]
        return kind(width), (torch.zeros(sizes["B"], sizes["S"], width),)

    return make


def strided(sizes: Mapping[str, int]) -> Made:
    return Strided(sizes["channels"]), (torch.zeros(sizes["B"], 3, sizes["H"], sizes["W"]),)


def lstm(sizes: Mapping[str, int]) -> Made:
    module = nn.LSTM(sizes["input_size"], sizes["hidden_size"], batch_first=True)
    return module, (torch.zeros(sizes["B"], sizes["S"], sizes["input_size"]),)


def transposed(sizes: Mapping[str, int]) -> Made:
    module = nn.ConvTranspose2d(sizes["c_in"], sizes["c_out"], 3, stride=2)
    return module, (torch.zeros(sizes["B"], sizes["c_in"], sizes["H"], sizes["W"]),)

"""A model with a place for every kind of fault; which one happens there is up to the faulty backend.

Each place uses an op of its own, so that a fault can be planted exactly there.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

WIDTH = 8


class Layer(nn.Module):
    """One of twelve; the one at 7 has another width inside."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, hidden)
        self.down = nn.Linear(hidden, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(x))


class Head(nn.Module):
    """One of three; `bent` uses an op that the others do not have."""

    def __init__(self, *, bent: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, 4)
        self.bent = bent

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        return torch.cosh(x) if self.bent else x


class Glue(nn.Module):
    """Its children pass; its own op may not."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(WIDTH, WIDTH)
        self.right = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.maximum(self.left(x), self.right(x))


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sinh(x)


class Exponent(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.expm1(x)


class Pair(nn.Module):
    """Two places in one parent."""

    def __init__(self) -> None:
        super().__init__()
        self.sine = Sine()
        self.exponent = Exponent()

    def forward(self, x: Tensor) -> Tensor:
        return self.sine(x) + self.exponent(x)


class Clip(nn.Module):
    """Is called with two shapes."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


class Keyword(nn.Module):
    """Is called with keyword arguments only."""

    def forward(self, *, start: Tensor, end: Tensor, weight: float = 0.5) -> Tensor:
        return torch.lerp(start, end, weight)


@dataclass
class Both:
    """What a module may give."""

    total: Tensor
    last: Tensor


class Gives(nn.Module):
    """Takes a tuple, gives a dataclass."""

    def forward(self, pair: tuple[Tensor, Tensor]) -> Both:
        return Both(total=torch.cumsum(pair[0], dim=-1), last=pair[1] * 2)


class Splits(nn.Module):
    """Gives a tuple."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x.chunk(2, dim=-1)
        return torch.cat([second, first], dim=-1), x


class Arc(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.atan(x)


class Uses(nn.Module):
    """Holds a module that another one holds, too."""

    def __init__(self, shared: nn.Module) -> None:
        super().__init__()
        self.shared = shared
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.shared(self.linear(x))


class Together(nn.Module):
    """Two ops, each right alone."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(torch.exp(torch.neg(x))).floor()


class Planted(nn.Module):
    """All places, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(24 if number == 7 else 16) for number in range(12))
        self.heads = nn.ModuleList([Head(), Head(bent=True), Head()])
        self.glue = Glue()
        self.pair = Pair()
        self.clip = Clip()
        self.keyword = Keyword()
        self.gives = Gives()
        self.splits = Splits()
        arc = Arc()
        self.first_use = Uses(arc)
        self.second_use = Uses(arc)
        self.together = Together()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        for layer in self.layers:
            x = layer(x)
        x = self.pair(self.glue(x)).tanh()
        x = self.clip(x) + self.clip(x[:, :2]).sum()
        x = self.keyword(start=x, end=x + 1)
        both = self.gives(self.splits(x))
        x = self.second_use(self.first_use(both.total + both.last))
        x = x + self.together(x)
        return {"logits": torch.cat([head(x) for head in self.heads], dim=-1), "x": x}


def load_model() -> nn.Module:
    torch.manual_seed(0)
    return Planted().eval()


def get_inputs() -> Tensor:
    return torch.linspace(-1, 1, 3 * 5 * WIDTH).reshape(3, 5, WIDTH)

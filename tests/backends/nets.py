"""Small modules with known answers, and nested inputs and outputs as models have them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class TwoLayers(nn.Module):
    """Linear, GELU, Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.middle = nn.GELU()
        self.second = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.middle(self.first(x)))


class Cache:
    """An object with tensors inside, as a key-value cache is."""

    def __init__(self, keys: Tensor, seen: int) -> None:
        self.layers = [{"keys": keys}]
        self.seen = seen


@dataclass
class Output:
    logits: Tensor
    hidden: tuple[Tensor, ...] = ()
    loss: Tensor | None = None
    cache: Any = None


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


class Nested(nn.Module):
    """Keyword arguments in, a dataclass with a cache out."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor, *, scale: Tensor, cache: Cache) -> Output:
        hidden = self.linear(x) * scale
        keys = torch.cat([cache.layers[0]["keys"], hidden])
        return Output(logits=hidden.sum(-1), hidden=(x, hidden), cache=Cache(keys, cache.seen + 1))


def seeded(module: nn.Module) -> nn.Module:
    """A module with the same weights in every run."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    return module.eval()


def two_layers() -> tuple[nn.Module, Tensor]:
    return seeded(TwoLayers()), torch.randn(3, 8, generator=torch.Generator().manual_seed(2))


def nested() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    generator = torch.Generator().manual_seed(3)
    x, scale, keys = (torch.randn(2, 8, generator=generator) for _ in range(3))
    return seeded(Nested()), (x,), {"scale": scale, "cache": Cache(keys, 4)}

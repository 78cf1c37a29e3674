"""Small models, each with one thing that makes capturing hard."""

from typing import Any

import torch
from torch import Tensor, nn


class Feed(nn.Module):
    """Two linear layers with an activation between."""

    def __init__(self, width: int = 8, slope: float = 0.0) -> None:
        super().__init__()
        self.slope = slope
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.leaky_relu(self.up(x), self.slope))


class Stack(nn.Module):
    """Any number of layers, one after the other."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Attention(nn.Module):
    """Fused attention."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x)
        return nn.functional.scaled_dot_product_attention(query, query, x)


class Numbered(nn.Module):
    """A layer that knows its number, and may look at it."""

    def __init__(self, layer_idx: int, *, looks: bool = False) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.looks = looks
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        return x + 1 if self.looks and self.layer_idx == 3 else x


class PlainObject:
    """An object with attributes and no more."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class CacheObject(PlainObject):
    """A cache as transformers has it: not a dataclass, one entry object a layer."""

    entries: list[Any]

    def update(self, new: Tensor, layer: int) -> Tensor:
        entry = self.entries[layer]
        entry.keys = new if entry.keys is None else torch.cat([entry.keys, new], dim=1)
        entry.length += new.shape[1]
        result: Tensor = entry.keys
        return result


def cache(layers: int, *, keys: Tensor | None = None) -> CacheObject:
    """A cache with an entry for each layer."""
    length = 0 if keys is None else keys.shape[1]
    return CacheObject(entries=[PlainObject(keys=keys, length=length) for _ in range(layers)])


class CachedLayer(nn.Module):
    """A layer that adds to its entry of a cache."""

    def __init__(self, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor, past: CacheObject) -> Tensor:
        keys = past.update(self.linear(x), self.layer_idx)
        return x + keys.sum(dim=1, keepdim=True)


class CachedStack(nn.Module):
    """Layers that share one cache and give it back."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(CachedLayer(number) for number in range(layers))

    def forward(self, x: Tensor, past: CacheObject) -> dict[str, Any]:
        for layer in self.layers:
            x = layer(x, past=past)
        return {"x": x, "past": past}


class ReadsWeights(nn.Module):
    """Takes a branch by the value of something computed from weights."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        return x.relu() if x.sum() > 0 else x.tanh()


class ReadsMask(nn.Module):
    """Takes a branch by the value of a mask it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.linear(x)
        return x if mask.all() else x * mask


class Broken(nn.Module):
    """Its second layer does not fit the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Sequential(nn.Linear(5, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))

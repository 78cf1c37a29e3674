"""Modules at any setting, for the tests that measure."""

from pathlib import Path

import torch
from torch import nn

RECIPES = Path(__file__)
LINEAR = "torch.nn.modules.linear.Linear"


def linear(n: int, i: int, o: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A linear layer without bias."""
    return nn.Linear(i, o, bias=False), (torch.empty(n, i),)


def no_pair(n: int) -> int:
    """Not what a recipe must give."""
    return n


def fails(n: int) -> None:
    """Cannot be built."""
    raise ValueError(n)


def fails_in_forward(n: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Can be built, but not run."""
    return nn.Linear(n, n), (torch.empty(n, n + 1),)

"""Inputs while they are being made up: seeded tensors by name, each with a note that says what it is."""

from collections.abc import Collection, Sequence
from typing import Any

import torch


class Draft:
    """Collects keyword arguments and notes; the same seed gives the same values."""

    def __init__(self, seed: int) -> None:
        self.kwargs: dict[str, Any] = {}
        self.notes: list[str] = []
        self._generator = torch.Generator().manual_seed(seed)

    def tokens(self, name: str, shape: Sequence[int], *, below: int, avoid: Collection[int] = ()) -> torch.Tensor:
        """Random ids, none of them special."""
        ids = torch.randint(0, max(below, 1), tuple(shape), generator=self._generator)
        plain = next((candidate for candidate in range(below) if candidate not in avoid), 0)
        if avoid:
            ids = torch.where(torch.isin(ids, torch.tensor(sorted(avoid))), plain, ids)
        return self.put(name, ids, f"random token ids below {below}")

    def ones(
        self, name: str, shape: Sequence[int], *, dtype: torch.dtype = torch.int64, what: str = "all ones"
    ) -> None:
        """A mask that hides nothing."""
        self.put(name, torch.ones(tuple(shape), dtype=dtype), what)

    def zeros(
        self, name: str, shape: Sequence[int], *, dtype: torch.dtype = torch.int64, what: str = "all zeros"
    ) -> None:
        """Indices that all point at the first entry."""
        self.put(name, torch.zeros(tuple(shape), dtype=dtype), what)

    def floats(self, name: str, shape: Sequence[int], what: str = "random values") -> torch.Tensor:
        """Normally distributed values."""
        return self.put(name, torch.randn(tuple(shape), generator=self._generator), what)

    def put(self, name: str, tensor: torch.Tensor, what: str) -> torch.Tensor:
        """Take a tensor as it is."""
        self.kwargs[name] = tensor
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.notes.append(f"{name}: {dtype}{list(tensor.shape)}, {what}")
        return tensor

    def say(self, name: str, value: Any, what: str) -> None:
        """Take a value that is no tensor."""
        self.kwargs[name] = value
        self.notes.append(f"{name}: {what}")

    def forget(self, name: str) -> None:
        """Drop an input again, with its notes."""
        self.kwargs.pop(name, None)
        self.notes = [note for note in self.notes if not note.startswith(f"{name}:")]

"""Small things that every backend does around a call."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.backends.protocol import Run


def without_gradients(run: Run) -> Run:
    """The same function with autograd off."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return run(*args, **kwargs)

    return call


def first_line(error: BaseException) -> str:
    """What an exception says, in one line."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {line}" if line else type(error).__name__

"""OpSignature -> Price, one file per family; importing this folder fills the registry."""

from torchstone.cost.prices import (
    attention,
    convolution,
    linear_algebra,
    matmul,
    movement,
    pointwise,
    recurrent,
    reduction,
)

__all__ = ["attention", "convolution", "linear_algebra", "matmul", "movement", "pointwise", "recurrent", "reduction"]

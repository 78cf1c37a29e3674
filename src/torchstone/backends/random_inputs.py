"""Tensors to run a program on: seeded, the same on every machine with the same torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch


def random_tensor(
    shape: Sequence[int],
    dtype: torch.dtype = torch.float32,
    *,
    seed: int = 0,
    whole: Sequence[int] = (0, 2),
    stride: Sequence[int] | None = None,
) -> torch.Tensor:
    """Normally distributed floats, or whole numbers from whole[0] up to but without whole[1]."""
    if stride is not None and 0 not in shape:  # laid out as asked, and repeated or overlapping where that is asked
        extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        return random_tensor((extent,), dtype, seed=seed, whole=whole).as_strided(tuple(shape), tuple(stride))
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_complex:
        return torch.view_as_complex(torch.randn((*shape, 2), generator=generator)).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(tuple(shape), generator=generator).to(dtype)
    return torch.randint(whole[0], whole[1], tuple(shape), generator=generator).to(dtype)


def tensor_of(about: Mapping[str, Any]) -> torch.Tensor:
    """A tensor from its description in JSON: the arguments of `random_tensor`, or `values` for a small one.

    With a `stride` the values are those of the memory it lies on. `requires_grad` says that it wants gradients.
    """
    dtype = getattr(torch, about.get("dtype", "float32"))
    if "values" in about:
        memory = torch.tensor(about["values"], dtype=dtype)
        stride = about.get("stride")
        made = memory.reshape(about["shape"]) if stride is None else memory.as_strided(about["shape"], stride)
    else:
        asked = {name: about[name] for name in ("seed", "whole", "stride") if about.get(name) is not None}
        made = random_tensor(about["shape"], dtype, **asked)
    return made.requires_grad_() if about.get("requires_grad") else made

"""What was seen of a tensor -> a tensor like it: laid out as it was, with values like those it had. Needs torch alone.

A description is {"shape", "dtype", "stride", "offset", "memory", "facts"}: tensors with the same number of memory share
it, and `facts` holds what is known of the values: lowest, highest, has_nan, has_inf, zeros (a share), values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

MOST_OFFSET = 1 << 24  # elements before the first one; beyond that only its place in a block of 64 is kept
_BLOCK = 64
_FAR = 1e6  # a range this wide is that of a mask: its ends are used, not what lies between
_FEW = 0.01  # a share of zeros below this is chance
_SIGMAS = 3.0

Description = Mapping[str, Any]


def make_inputs(descriptions: Sequence[Description], *, seed: int) -> list[Tensor]:
    """Tensors for all descriptions, in order; the same seed gives the same values."""
    generator = torch.Generator().manual_seed(seed)
    memories: dict[int, Tensor] = {}
    made = []
    for about in descriptions:
        group = [one for one in descriptions if one["memory"] == about["memory"]]
        if about["memory"] not in memories:
            extent = max(_extent(one) for one in group)
            memories[about["memory"]] = _filled(extent, _dtype(about), about.get("facts") or {}, generator)
        tensor = _laid_out(memories[about["memory"]], about)
        _put_whole_values(tensor, (about.get("facts") or {}).get("values"))
        made.append(tensor)
    return made


def meta_inputs(descriptions: Sequence[Description]) -> list[Tensor]:
    """The same tensors without any memory."""
    return [
        torch.empty_strided(about["shape"], about["stride"], dtype=_dtype(about), device="meta")
        for about in descriptions
    ]


def _dtype(about: Description) -> torch.dtype:
    found = getattr(torch, about["dtype"], None)
    if not isinstance(found, torch.dtype):
        msg = f"torch {torch.__version__} has no element type {about['dtype']}"
        raise TypeError(msg)
    return found


def offset_of(about: Description) -> int:
    """Where its first element lies in its memory."""
    offset = int(about.get("offset") or 0)
    return offset if offset <= MOST_OFFSET else offset % _BLOCK


def _extent(about: Description) -> int:
    """Elements of memory from its start to the last one that the tensor reaches."""
    if 0 in about["shape"]:
        return offset_of(about)
    return (
        offset_of(about)
        + 1
        + sum((size - 1) * step for size, step in zip(about["shape"], about["stride"], strict=True))
    )


def _laid_out(memory: Tensor, about: Description) -> Tensor:
    if memory.dtype != _dtype(about):
        memory = memory.view(_dtype(about))
    return memory.as_strided(tuple(about["shape"]), tuple(about["stride"]), offset_of(about))


def _filled(extent: int, dtype: torch.dtype, facts: Description, generator: torch.Generator) -> Tensor:
    if dtype.is_complex:
        parts = torch.randn((extent, 2), generator=generator)
        return torch.view_as_complex(parts).to(dtype)
    if dtype.is_floating_point:
        return _floats(extent, facts, generator).to(dtype)
    zeros = facts.get("zeros")
    if dtype == torch.bool:
        share = 0.5 if zeros is None else zeros
        return torch.rand(extent, generator=generator) >= share
    low, high = int(facts.get("lowest") or 0), int(1 if facts.get("highest") is None else facts["highest"])
    values = torch.randint(min(low, high), max(low, high) + 1, (extent,), generator=generator, dtype=torch.int64)
    return values.to(dtype)


def _floats(extent: int, facts: Description, generator: torch.Generator) -> Tensor:
    low, high = facts.get("lowest"), facts.get("highest")
    zeros = facts.get("zeros")
    chance = torch.rand(extent, generator=generator)
    if low is None or high is None:
        values = torch.randn(extent, generator=generator)
    elif max(abs(low), abs(high)) > _FAR:
        values = torch.where(torch.rand(extent, generator=generator) < 0.5, float(low), float(high))  # noqa: PLR2004 - a coin
    elif low < 0 < high:
        spread = max(-low, high) / _SIGMAS
        values = (torch.randn(extent, generator=generator) * spread).clamp(low, high)
    else:
        values = torch.rand(extent, generator=generator) * (high - low) + low
    if zeros is not None and zeros > _FEW:
        values = torch.where(chance < zeros, 0.0, values)
    return _with_non_finite(values, chance, facts)


def _with_non_finite(values: Tensor, chance: Tensor, facts: Description) -> Tensor:
    """Infinities where a mask had them, and one NaN where there were some."""
    if facts.get("has_inf"):
        only_zeros_are_finite = facts.get("lowest") == 0 and facts.get("highest") == 0
        share = (facts.get("zeros") or 0.0) if only_zeros_are_finite else 1 - 1 / max(1, values.numel())
        values = torch.where(chance >= share, float("-inf"), values)
    if facts.get("has_nan") and values.numel():
        values[-1] = float("nan")
    return values


def _put_whole_values(tensor: Tensor, values: Sequence[object] | None) -> None:
    """Give a small tensor the very values it had; repeated elements of an expanded one are one element."""
    if values is None or len(values) != tensor.numel() or not tensor.numel():
        return
    wanted = torch.tensor(list(values)).to(tensor.dtype).reshape(tensor.shape)
    for dim, step in enumerate(tensor.stride()):
        if step == 0:
            tensor, wanted = tensor.narrow(dim, 0, 1), wanted.narrow(dim, 0, 1)
    if _overlaps(tensor):
        return
    tensor.copy_(wanted)


def _overlaps(tensor: Tensor) -> bool:
    reach = 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and step < reach:
            return True
        reach += (size - 1) * step
    return False

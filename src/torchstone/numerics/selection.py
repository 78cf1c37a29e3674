"""Indices that an op selected by value: argmax, topk, sort. Other indices are right as well if their values are.

Two elements that are equal, or nearly, may come in any order; which of them a correct implementation picks is not
defined. So indices are compared by what they select.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from torchstone.numerics.number_formats import float_format, spacing

_WHOLE = ("argmax", "argmin")  # without a dimension they index the flat tensor
_ALONG = ("max", "min", "topk", "sort", "kthvalue", "median", "nanmedian", "mode", "cummax", "cummin", *_WHOLE)
_STEPS = 4  # as far as an error may be above the noise
_DISTINCT = ("topk", "sort")  # each element once
_FIRST_DIM = {"topk": 2, "kthvalue": 2}  # the position of `dim` where it is not 1
_DEFAULT_DIM = {"sort": -1, "topk": -1, "kthvalue": -1, "median": -1, "nanmedian": -1, "mode": -1}


@dataclass(frozen=True)
class Selection:
    """Where indices point: a dimension of the values, None for the flat tensor."""

    values: Tensor  # float64
    dim: int | None
    distinct: bool  # an index that comes twice is wrong
    step: float  # the relative distance of neighbours in the format of the values
    slack: float  # by how much the values themselves may be off

    def selected(self, indices: Tensor) -> Tensor | None:
        """The values at some indices; None where an index is out of range, or comes twice and must not."""
        if self.dim is None:
            size, values, flat = self.values.numel(), self.values.flatten(), indices.flatten().long()
            return values[flat] if _in_range(flat, size) else None
        values, places = self.values, indices.long()
        if places.dim() == values.dim() - 1:
            places = places.unsqueeze(self.dim)
        if places.dim() != values.dim() or not _in_range(places, values.shape[self.dim]):
            return None
        if self.distinct and bool((places.sort(self.dim).values.diff(dim=self.dim) == 0).any()):
            return None
        return values.gather(self.dim, places).reshape(indices.shape)

    def as_good(self, wanted: Tensor, given: Tensor) -> bool:
        """Whether what was selected is the same within the noise of the values."""
        apart = torch.where(wanted == given, 0.0, (wanted - given).abs())  # two infinities have no difference
        return bool((apart <= wanted.abs() * (_STEPS * self.step) + _STEPS * self.slack).all())

    def in_steps(self, step: float) -> Selection:
        """The same for an implementation in a coarser format; whole numbers are the same in every format."""
        return (
            self
            if step <= self.step or self.step == 0.0
            else replace(self, step=step, slack=self.slack * step / self.step)
        )


def selection_of(name: str, args: Any, wide_args: Any, kwargs: Any, outputs: list[Tensor]) -> Selection | None:
    """What the last output of an op selects from, where the op picks elements by their value."""
    _, op, overload = [*name.split("."), ""][:3]
    if op not in _ALONG or not outputs or outputs[-1].is_floating_point() or not isinstance(args[0], Tensor):
        return None
    if outputs[-1].dtype != torch.int64:
        return None
    position = 2 if overload == "stable" else _FIRST_DIM.get(op, 1)
    dim = kwargs.get("dim", args[position] if len(args) > position else _DEFAULT_DIM.get(op))
    if not isinstance(dim, int | None) or args[0].dim() == 0:
        return None
    if dim is None and op not in _WHOLE:
        return None
    values, native = wide_args[0].detach().double(), args[0].detach()
    apart = (native.double() - values).abs()
    return Selection(
        values=values.clone(),
        dim=None if dim is None else dim % values.dim(),
        distinct=op in _DISTINCT,
        step=spacing(float_format(native.dtype)) if native.is_floating_point() else 0.0,
        slack=float(apart[apart.isfinite()].max()) if apart.isfinite().any() else 0.0,
    )


def _in_range(places: Tensor, size: int) -> bool:
    return not places.numel() or bool(((places >= 0) & (places < size)).all())

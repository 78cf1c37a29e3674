"""Weights and float inputs in another dtype."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from torchstone.errors import InputError
from torchstone.models.inputs import Inputs


def parse_dtype(name: str | None) -> torch.dtype | None:
    """The floating-point dtype of a name; None stays None."""
    if name is None:
        return None
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if isinstance(dtype, torch.dtype) and dtype.is_floating_point:
        return dtype
    msg = f"the dtype {name!r} is not a floating-point dtype of torch; use float32, bfloat16 or float16"
    raise InputError(msg)


def cast_model(model: nn.Module, dtype: torch.dtype | None) -> None:
    """Cast floating-point parameters and buffers, in place; None leaves them."""
    if dtype is not None:
        model.to(dtype)


def cast_inputs(inputs: Inputs, dtype: torch.dtype | None) -> Inputs:
    """Cast floating-point tensors among the inputs; all others stay."""
    if dtype is None:
        return inputs

    def cast(tensor: torch.Tensor) -> Any:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return replace(
        inputs,
        args=tree_map_only(torch.Tensor, cast, inputs.args),
        kwargs=tree_map_only(torch.Tensor, cast, inputs.kwargs),
    )

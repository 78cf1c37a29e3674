"""Prepare a model and its inputs for a run: dtype, lazy modules, and whether the inputs match forward()."""

import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map_only

from torchstone.errors import InputError, ModelError, ModelInputsError
from torchstone.models.inputs import Inputs

# Weights and float inputs in another dtype.


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


# Lazy modules: their parameters have no shape before the model ran for the first time.


def lazy_tensors(model: nn.Module) -> list[str]:
    """The parameters and buffers of a model that have no shape yet."""
    held = (*model.named_parameters(), *model.named_buffers())
    return [name for name, tensor in held if is_lazy(tensor)]


def give_shapes(model: nn.Module, inputs: Inputs) -> None:
    """Run a model with lazy modules once, as torch asks for; a model without them is left alone."""
    lazy = lazy_tensors(model)
    if not lazy:
        return
    try:
        with torch.no_grad():
            model(*inputs.args, **inputs.kwargs)
    except Exception as error:  # the border to code that is not ours
        words = " ".join(str(error).split())
        msg = f"the first run, which gives {lazy[0]} its shape, raised {type(error).__name__}: {words}"
        raise ModelError(msg) from error
    left = lazy_tensors(model)
    if left:
        msg = f"{left[0]} is lazy, and still has no shape after a run: make it a parameter with a shape"
        raise ModelError(msg)


# Whether inputs can be handed to a model at all, told before it runs.


def check_fit(model: nn.Module, inputs: Inputs) -> None:
    """Refuse inputs that do not match the parameters of the model's forward by number or name."""
    if model._forward_pre_hooks:  # noqa: SLF001 - a hook may hand over other inputs than it was given
        return
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):  # written in C, or compiled: only the call itself can tell
        return
    try:
        signature.bind(*inputs.args, **inputs.kwargs)
    except TypeError as error:
        wanted = ", ".join(signature.parameters) or "nothing"
        msg = (
            f"the inputs ({inputs.origin}) do not fit {type(model).__name__}: {error}; its forward takes {wanted}, "
            "and --inputs FILE.py::FN says what to pass"
        )
        raise ModelInputsError(msg) from error

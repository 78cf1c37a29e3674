"""Lazy modules: their parameters have no shape before the model ran for the first time."""

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from torchstone.errors import ModelError
from torchstone.models.inputs import Inputs


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

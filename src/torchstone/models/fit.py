"""Whether inputs can be handed to a model at all, told before it runs."""

import inspect

from torch import nn

from torchstone.errors import ModelInputsError
from torchstone.models.inputs import Inputs


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

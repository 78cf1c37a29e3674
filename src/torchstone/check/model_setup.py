"""Load a named model into the process that tasks are forked from, in torchstone's own environment."""

from typing import Any

from torchstone.check.child.model import LoadedModel, describe_opened, set_model, set_up_backend
from torchstone.errors import ModelInputsError


def set_up(payload: dict[str, Any]) -> None:
    """The setup of an environment: load the model with values, and the backend.

    With `describes` the backend is asked first what it is; where nothing can be forked from here, that is all.
    """
    import torch

    if payload.get("describes") and not describe_opened(payload["backend"]):
        return

    from torchstone.models.inputs import InputOptions
    from torchstone.models.load_model import describe_source, load
    from torchstone.models.prepare import check_inputs_match

    torch.manual_seed(0)  # random weights of a user's file: the same ones when an interrupted check is resumed
    model, inputs = load(
        payload["model"], inputs=payload["inputs"], options=InputOptions(**payload["options"]), device="cpu"
    )
    check_inputs_match(model, inputs)
    refuse_sparse(inputs.args, inputs.kwargs)
    about = {
        "model": describe_source(payload["model"]),
        "phase": inputs.phase,
        "inputs": inputs.origin,
        "notes": inputs.notes,
    }
    set_model(LoadedModel(model, inputs.args, inputs.kwargs, about))
    if payload.get("backend"):
        set_up_backend(payload["backend"])


def refuse_sparse(args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    """Refuse inputs that cannot be written for the processes that run modules, with the way out."""
    import torch

    from torchstone.numerics.pytree import named_tensors

    for name, tensor in named_tensors((args, kwargs)):
        if tensor.layout != torch.strided and not tensor.is_nested:
            kind = str(tensor.layout).removeprefix("torch.")
            msg = (
                f"input {name} is a sparse tensor ({kind}), and a check runs modules on dense ones; pass its indices "
                "and values as inputs and build it inside the model, or pass it as a dense tensor"
            )
            raise ModelInputsError(msg)

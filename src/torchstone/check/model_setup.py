"""Load a named model into the process that tasks are forked from, in torchstone's own environment."""

from typing import Any

from torchstone.check.child.model import LoadedModel, set_model, set_up_backend


def set_up(payload: dict[str, Any]) -> None:
    """The setup of an environment: load the model with values, and the backend."""
    import torch

    from torchstone.models.inputs import InputOptions
    from torchstone.models.load_model import describe_source, load
    from torchstone.models.prepare import check_inputs_match

    torch.manual_seed(0)  # random weights of a user's file: the same ones when an interrupted check is resumed
    model, inputs = load(
        payload["model"], inputs=payload["inputs"], options=InputOptions(**payload["options"]), device="cpu"
    )
    check_inputs_match(model, inputs)
    about = {
        "model": describe_source(payload["model"]),
        "phase": inputs.phase,
        "inputs": inputs.origin,
        "notes": inputs.notes,
    }
    set_model(LoadedModel(model, inputs.args, inputs.kwargs, about))
    if payload.get("backend"):
        set_up_backend(payload["backend"])

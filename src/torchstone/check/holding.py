"""A name -> the model held by the process that tasks are forked from, in torchstone's own environment."""

from importlib import import_module
from pathlib import Path
from typing import Any

from torchstone.check.child.model import HeldModel, held_model, hold_backend, hold_model


def hold(payload: dict[str, Any]) -> None:
    """The setup of an environment: load the model with values, and the backend."""
    from torchstone.models.fit import check_fit
    from torchstone.models.inputs import InputOptions
    from torchstone.models.loading import describe_source, load

    model, inputs = load(
        payload["model"], inputs=payload["inputs"], options=InputOptions(**payload["options"]), device="cpu"
    )
    check_fit(model, inputs)
    about = {
        "model": describe_source(payload["model"]),
        "phase": inputs.phase,
        "inputs": inputs.origin,
        "notes": inputs.notes,
    }
    hold_model(HeldModel(model, inputs.args, inputs.kwargs, about))
    if payload.get("backend"):
        hold_backend(payload["backend"])


def capture_held(payload: dict[str, Any]) -> dict[str, Any]:
    """A task: capture the held model as it really runs, and save the trace.

    Which function captures is said by the payload: stages do not know each other.
    """
    from torchstone.record.codec import save

    module, _, name = payload["capture"].partition(":")
    capturing = import_module(module)
    held = held_model()
    about = capturing.About(command=payload["command"], **held.about)
    trace = getattr(capturing, name)(held.model, (held.args, held.kwargs), "cpu", reuse=False, about=about)
    save(Path(payload["trace"]), trace)
    failure = trace.failure
    return {"failure": None if failure is None else {"module": failure.module, "error": failure.error}}

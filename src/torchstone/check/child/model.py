"""State of the process that tasks are forked from: the model with its inputs, and the backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import nn

    from torchstone.backends.protocol import Backend

Payload: TypeAlias = dict[str, Any]  # what a task is asked, as JSON; its keys are those of the function it calls


@dataclass(frozen=True)
class LoadedModel:
    """A model with values, and the arguments of the call that is checked."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    about: dict[str, Any]  # name, phase, origin and notes of the inputs


_models: list[LoadedModel] = []
_backends: dict[str, Backend] = {}
_opened_backends: dict[str, Backend] = {}  # described, and not yet warm
_facts: list[dict[str, object]] = []


def set_model(loaded: LoadedModel) -> None:
    """Keep a model for the tasks to come."""
    _models[:] = [loaded]


def loaded_model() -> LoadedModel:
    """The model of this process."""
    if not _models:
        msg = "no model was loaded in this process"
        raise LookupError(msg)
    return _models[0]


def has_model() -> bool:
    """Whether there is one."""
    return bool(_models)


def describe_opened(payload: Payload) -> bool:
    """Open a backend and keep what it says of itself for `backend_facts`; whether tasks can be forked from here."""
    from torchstone.backends.lookup import describe_backend

    facts, backend = describe_backend(payload["spec"], payload["options"], with_digest=True)
    _facts[:] = [facts]
    if backend is not None:
        _opened_backends[_key(payload)] = backend
    return backend is not None and bool(backend.forks)


def backend_facts(_payload: Payload) -> dict[str, object]:
    """A task: what the backend of this process says of itself."""
    return _facts[0]


def set_up_backend(payload: Payload) -> None:
    """Open a backend and warm it up; the setup of an environment that holds no model."""
    backend = _opened_backends.get(_key(payload)) or _opened(payload)
    found = backend.availability()
    if not found.usable:
        msg = f"backend {payload['spec']} cannot run here: {found.reason}; it needs {found.needs}"
        raise RuntimeError(msg)
    backend.warm_up()
    if backend.forks:
        from torchstone.backends.graphs import warm_up_tracing

        warm_up_tracing(backend)
    _backends[_key(payload)] = backend


def backend_for(payload: Payload) -> Backend:
    """The backend that was set up, or one that is opened now."""
    if _key(payload) not in _backends:
        set_up_backend(payload)
    return _backends[_key(payload)]


def _opened(payload: Payload) -> Backend:
    from torchstone.backends.lookup import open_backend

    return open_backend(payload["spec"], payload["options"])


def _key(payload: Payload) -> str:
    return f"{payload['spec']} {sorted(payload['options'].items())}"

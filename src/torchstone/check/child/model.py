"""What a process holds for the tasks that are forked from it: the model with its inputs, and the backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from torchstone.backends.protocol import Backend


@dataclass(frozen=True)
class HeldModel:
    """A model with values, and the arguments of the call that is checked."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    about: dict[str, Any]  # name, phase, origin and notes of the inputs


_models: list[HeldModel] = []
_backends: dict[str, Backend] = {}


def hold_model(held: HeldModel) -> None:
    """Keep a model for the tasks to come."""
    _models[:] = [held]


def held_model() -> HeldModel:
    """The model of this process."""
    if not _models:
        msg = "this process holds no model"
        raise LookupError(msg)
    return _models[0]


def holds_model() -> bool:
    """Whether there is one."""
    return bool(_models)


def hold_backend(payload: dict[str, Any]) -> None:
    """Open a backend and warm it up; the setup of an environment that holds no model."""
    backend = _opened(payload)
    found = backend.availability()
    if not found.usable:
        msg = f"backend {payload['spec']} cannot run here: {found.reason}; it needs {found.needs}"
        raise RuntimeError(msg)
    backend.warm_up()
    _backends[_key(payload)] = backend


def backend_for(payload: dict[str, Any]) -> Backend:
    """The backend that is held, or one that is opened now."""
    if _key(payload) not in _backends:
        hold_backend(payload)
    return _backends[_key(payload)]


def _opened(payload: dict[str, Any]) -> Backend:
    from torchstone.backends.lookup import open_backend

    return open_backend(payload["spec"], payload["options"])


def _key(payload: dict[str, Any]) -> str:
    return f"{payload['spec']} {sorted(payload['options'].items())}"

"""Judging gradients: a module that returns its outputs together with the gradients of a fixed combination of them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from torchstone.backends.protocol import Args, Backend, Kwargs, Run
from torchstone.backends.torch_compile import keeping_gradients

# The two functions below are also part of repro scripts: they may use nothing but torch.


def tensors_with_gradients(value: Any) -> list[torch.Tensor]:
    """The tensors in outputs that a gradient can begin at, in order."""
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    if hasattr(value, "to_tuple"):
        parts = value.to_tuple()
    return [tensor for part in parts for tensor in tensors_with_gradients(part)]


def with_gradients(run: Any, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """What a run gives, and the gradients of its inputs and of the module's weights.

    What is differentiated is a sum of the outputs with small fixed weights, which every number format has exactly.
    """

    def leaf(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.detach().clone().requires_grad_() if is_float else value

    with torch.enable_grad():
        args = [leaf(value) for value in args]
        kwargs = {name: leaf(value) for name, value in kwargs.items()}
        outputs = run(*args, **kwargs)
        ends = tensors_with_gradients(outputs)
        begins = {f"input {place}": one for place, one in enumerate(args) if getattr(one, "requires_grad", False)}
        begins |= {f"input {name}": one for name, one in kwargs.items() if getattr(one, "requires_grad", False)}
        begins |= {name: one for name, one in module.named_parameters() if one.requires_grad}
        if not ends or not begins:
            return outputs, {}
        weights = [
            (torch.arange(end.numel(), device=end.device) % 7 - 3).to(end.dtype).reshape(end.shape) / 4 for end in ends
        ]
        found: Any = torch.autograd.grad(ends, list(begins.values()), weights, allow_unused=True)
    pairs = zip(begins.items(), found)  # noqa: B905 - the script may run on an old Python
    return outputs, {name: torch.zeros_like(one) if given is None else given for (name, one), given in pairs}


# --- The module and the backend that a check runs ---


class WithGradients(nn.Module):
    """A module that returns its outputs and gradients."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: object, **kwargs: object) -> object:
        """One forward and one backward pass."""
        outputs, found = with_gradients(self.module, self.module, args, kwargs)
        return {"outputs": detached(outputs), "gradients": found}


class GradientBackend:
    """A backend whose forward pass is differentiated; what it compiles for the backward pass runs, too."""

    def __init__(self, backend: Backend) -> None:
        self.name = backend.name
        self.forks = backend.forks
        self._backend = backend

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:
        """Compile the module inside; the gradients are torch's own."""
        assert isinstance(module, WithGradients)  # noqa: S101 - `attempt` made it
        inner = module.module
        run = self._backend.compile(inner, args, kwargs)

        def call(*args: object, **kwargs: object) -> object:
            with keeping_gradients(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # dynamo asks for the .grad of what eager computed before it
                outputs, found = with_gradients(run, inner, args, kwargs)
            return {"outputs": detached(outputs), "gradients": found}

        return call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(getattr(self._backend, name))


def detached(value: Any) -> Any:
    """Outputs without the graph that gradients go back through."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, Mapping):
        return {name: detached(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [detached(one) for one in value]
    return value


def gradients_source() -> str:
    """The functions of a repro script that judges gradients."""
    text = "\n\n".join(inspect.getsource(one) for one in (tensors_with_gradients, with_gradients))
    return text.replace(": Any", "").replace(" -> Any", "")

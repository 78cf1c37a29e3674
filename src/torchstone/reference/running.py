"""Run a model once on inputs of its own, and keep what it and its modules took and gave."""

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchstone.errors import ModelError
from torchstone.models.inputs import Inputs
from torchstone.numerics.compare import identical
from torchstone.record.golden import Role
from torchstone.reference.names import INPUTS, OUTPUTS, module_name
from torchstone.reference.structure import tensors_of

_NUMPY_SEEDS = 1 << 32  # numpy takes no larger seed, and none below 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One tensor as it was at one moment."""

    name: str
    role: Role
    module: str | None
    tensor: Tensor


@dataclass(slots=True, kw_only=True)
class Observation:
    """Everything that was kept of one run, in order of execution."""

    seen: list[Seen] = field(default_factory=list)
    inputs: Any = None
    outputs: Any = None
    changed_buffers: list[str] = field(default_factory=list)  # by path; they are put back

    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return {one.name: one.tensor for one in self.seen}


def given_inputs(inputs: Inputs, model: nn.Module) -> dict[str, Any]:
    """The inputs by the names of the model's forward."""
    import inspect

    try:
        bound = inspect.signature(model.forward).bind(*inputs.args, **inputs.kwargs)
    except (TypeError, ValueError):  # written in C, or a hook hands over other inputs: positions are names then
        return {**{str(place): value for place, value in enumerate(inputs.args)}, **inputs.kwargs}
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named |= value
        else:
            named[name] = value
    return named


def observe(model: nn.Module, inputs: Inputs, *, seed: int, watched: Sequence[str] = ()) -> Observation:
    """Run a model; its inputs, its buffers and the random state are as before afterwards."""
    args, kwargs = copy.deepcopy((inputs.args, inputs.kwargs))
    own = Inputs(args=args, kwargs=kwargs, origin=inputs.origin)
    observation = Observation(inputs=given_inputs(own, model))
    _keep(observation.inputs, INPUTS, Role.INPUT, None, observation)
    with ExitStack() as kept:
        kept.enter_context(seeded(seed))
        kept.enter_context(_buffers_kept(model, observation.changed_buffers))
        kept.enter_context(torch.no_grad())
        _watch(model, watched, observation, kept)
        try:
            observation.outputs = model(*args, **kwargs)
        except Exception as error:  # a model may raise anything
            words = " ".join(str(error).split())[:200]
            msg = f"the model stops with {type(error).__name__}: {words}; `torchstone inspect` shows where"
            raise ModelError(msg) from error
    _keep(observation.outputs, OUTPUTS, Role.OUTPUT, None, observation)
    return observation


def _watch(model: nn.Module, watched: Sequence[str], observation: Observation, kept: ExitStack) -> None:
    calls: Counter[str] = Counter()
    modules = dict(model.named_modules(remove_duplicate=False))
    for path in watched:
        before, after = _hooks(path, calls, observation)
        module = modules[path]
        kept.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
        kept.callback(module.register_forward_hook(after).remove)


def _hooks(path: str, calls: "Counter[str]", observation: Observation) -> tuple[Callable[..., None], ...]:
    running: list[int] = []  # a module may call itself

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        running.append(calls[path])
        calls[path] += 1
        given = given_inputs(Inputs(args=args, kwargs=kwargs, origin=path), module)
        name = f"{module_name(path, running[-1])}/{INPUTS}"
        _keep(given, name, Role.MODULE_INPUT, path, observation)

    def after(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        name = f"{module_name(path, running.pop())}/{OUTPUTS}"
        _keep(output, name, Role.MODULE_OUTPUT, path, observation)

    return before, after


def _keep(value: Any, name: str, role: Role, module: str | None, observation: Observation) -> None:
    """Copy the tensors of a value now: later ops may write to them."""
    for key, tensor in tensors_of(value, name):
        copied = tensor.detach().clone()
        observation.seen.append(Seen(name=key, role=role, module=module, tensor=copied))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """What torch, Python and numpy draw follows from the seed; their states are as before afterwards."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % _NUMPY_SEEDS)
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


@contextmanager
def _buffers_kept(model: nn.Module, changed: list[str]) -> Iterator[None]:
    """Statistics and counters that the run updates or replaces are put back; their names go to `changed`."""
    held = [
        (module, path, name, buffer, buffer.detach().clone())
        for path, module in model.named_modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    try:
        yield
    finally:
        for module, path, name, buffer, value in held:
            replaced = getattr(module, name, None) is not buffer
            if not replaced and identical(buffer, value):
                continue
            changed.append(f"{path}.{name}" if path else name)
            setattr(module, name, buffer)
            with torch.no_grad():
                buffer.copy_(value)

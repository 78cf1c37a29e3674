"""Run a model once and record what it and its modules took and returned, its torch functions, and its size."""

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from torchstone.errors import ModelError
from torchstone.foreign import foreign_code, printable
from torchstone.models.inputs import Inputs
from torchstone.numerics.compare import identical
from torchstone.numerics.dtypes import dtype_name
from torchstone.numerics.written import written_put_back
from torchstone.record.reference import FunctionUse, Role
from torchstone.reference.golden_files import INPUTS, OUTPUTS, module_name
from torchstone.reference.structure import tensors_of

# --- One run, with the inputs and outputs of the model and of watched modules ---


_NUMPY_SEEDS = 1 << 32  # numpy takes no larger seed, and none below 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTensor:
    """A copy of one tensor at one point of a run."""

    name: str
    role: Role
    module: str | None
    tensor: Tensor


@dataclass(slots=True, kw_only=True)
class Observation:
    """Everything that was recorded of one run, in order of execution."""

    seen: list[RecordedTensor] = field(default_factory=list)
    inputs: object = None
    outputs: object = None
    changed_buffers: list[str] = field(default_factory=list)  # by path; their values are restored

    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return {one.name: one.tensor for one in self.seen}


def inputs_by_name(inputs: Inputs, model: nn.Module) -> dict[str, object]:
    """The inputs by the names of the model's forward."""
    import inspect

    try:
        bound = inspect.signature(model.forward).bind(*inputs.args, **inputs.kwargs)
    except (TypeError, ValueError):  # written in C, or a hook replaces the inputs: positions become names
        return {**{str(place): value for place, value in enumerate(inputs.args)}, **inputs.kwargs}
    named: dict[str, object] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named |= value
        else:
            named[name] = value
    return named


def copy_inputs(inputs: Inputs) -> Inputs:
    """A deep copy, so that a run that writes to its inputs does not change the caller's."""
    args, kwargs = copy.deepcopy((inputs.args, inputs.kwargs))
    return Inputs(args=args, kwargs=kwargs, origin=inputs.origin)


def observe(model: nn.Module, inputs: Inputs, *, seed: int, watched: Sequence[str] = ()) -> Observation:
    """Run a model; its inputs, the values of its tensors and the random state are unchanged afterwards."""
    own = copy_inputs(inputs)
    observation = Observation(inputs=inputs_by_name(own, model))
    _record_tensors(observation.inputs, INPUTS, Role.INPUT, None, observation)
    with ExitStack() as stack:
        stack.enter_context(seeded(seed))
        stack.enter_context(written_put_back((own.args, own.kwargs)))
        stack.enter_context(_restored_buffers(model, observation.changed_buffers))
        stack.enter_context(torch.no_grad())
        _add_hooks(model, watched, observation, stack)
        with foreign_code(exit_is_answer=True) as ran:  # a model may raise anything
            observation.outputs = model(*own.args, **own.kwargs)
        if ran.cause is not None:
            reason = " ".join(str(printable(ran.error or ran.cause)).split())[:200]
            msg = f"the model raised {type(ran.cause).__name__}: {reason}; `torchstone inspect` shows where"
            raise ModelError(msg) from ran.cause
        _record_tensors(observation.outputs, OUTPUTS, Role.OUTPUT, None, observation)  # before buffers are put back
    return observation


def _add_hooks(model: nn.Module, watched: Sequence[str], observation: Observation, stack: ExitStack) -> None:
    calls: Counter[str] = Counter()
    modules = dict(model.named_modules(remove_duplicate=False))
    for path in watched:
        before, after = _hooks(path, calls, observation)
        module = modules[path]
        stack.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
        stack.callback(module.register_forward_hook(after).remove)


def _hooks(path: str, calls: "Counter[str]", observation: Observation) -> tuple[Callable[..., None], ...]:
    running: list[int] = []  # a module may call itself

    def before(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        running.append(calls[path])
        calls[path] += 1
        given = inputs_by_name(Inputs(args=args, kwargs=kwargs, origin=path), module)
        name = f"{module_name(path, running[-1])}/{INPUTS}"
        _record_tensors(given, name, Role.MODULE_INPUT, path, observation)

    def after(_module: nn.Module, _args: tuple[object, ...], output: object) -> None:
        name = f"{module_name(path, running.pop())}/{OUTPUTS}"
        _record_tensors(output, name, Role.MODULE_OUTPUT, path, observation)

    return before, after


def _record_tensors(value: object, name: str, role: Role, module: str | None, observation: Observation) -> None:
    """Copy the tensors of a value now: later ops may write to them."""
    for key, tensor in tensors_of(value, name):
        copied = tensor.detach().clone()
        observation.seen.append(RecordedTensor(name=key, role=role, module=module, tensor=copied))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch, Python and numpy; their random states are restored on exit."""
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
def _restored_buffers(model: nn.Module, changed: list[str]) -> Iterator[None]:
    """Restore buffers that the run updates or replaces, such as statistics; their names go to `changed`."""
    before = [
        (module, path, name, buffer, buffer.detach().clone())
        for path, module in model.named_modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    try:
        yield
    finally:
        for module, path, name, buffer, value in before:
            replaced = getattr(module, name, None) is not buffer
            if not replaced and identical(buffer, value):
                continue
            changed.append(f"{path}.{name}" if path else name)
            setattr(module, name, buffer)
            with torch.no_grad():
                buffer.copy_(value)


# --- Torch functions that the model's code calls, before they decompose into aten ops ---


_READ_BY_PYTHON = ("__bool__", "__int__", "__float__", "__index__", "item", "tolist")  # the values leave torch
_WRITES = "__setitem__"
_MAX_SHOWN = 60


def used_functions(model: nn.Module, inputs: Inputs, *, seed: int) -> tuple[FunctionUse, ...]:
    """Run a model once more and list the functions, most called first; size queries are omitted."""
    recorder = _FunctionRecorder()
    with ExitStack() as stack:
        for path, module in model.named_modules():
            before, after = recorder.hooks(path)
            stack.callback(module.register_forward_pre_hook(before).remove)
            stack.callback(module.register_forward_hook(after, always_call=True).remove)
        with recorder:
            observe(model, inputs, seed=seed)
    return recorder.uses()


class _FunctionRecorder(TorchFunctionMode):
    """Records each function that Python calls while a module runs, but not the calls inside such a function."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[str] = []
        self.calls: Counter[tuple[str, str, str]] = Counter()
        self.modules: dict[tuple[str, str, str], dict[str, None]] = {}

    def hooks(self, path: str) -> tuple[Callable[..., None], ...]:
        def before(_module: nn.Module, _args: object) -> None:
            self.running.append(path)

        def after(_module: nn.Module, _args: object, _output: object) -> None:
            self.running.pop()

        return before, after

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        named = kwargs or {}
        arguments = ", ".join((*map(_shown, args), *(f"{name}={_shown(value)}" for name, value in named.items())))
        result = func(*args, **named)
        name = _name(func)
        if self.running and _counts(name, result):
            use = (name, arguments, _shown(result))
            self.calls[use] += 1
            self.modules.setdefault(use, {})[self.running[-1]] = None
        return result

    def uses(self) -> tuple[FunctionUse, ...]:
        order = sorted(self.calls, key=lambda use: (-self.calls[use], use))
        return tuple(
            FunctionUse(
                function=use[0],
                arguments=use[1],
                output=use[2],
                calls=self.calls[use],
                modules=tuple(self.modules[use]),
            )
            for use in order
        )


def _name(func: Callable[..., object]) -> str:
    """The name of a function in torch; torch has no name for a few of its own."""
    known = resolve_name(func)
    return str(known) if known else f"torch.{getattr(func, '__name__', type(func).__name__)}"


def _counts(name: str, result: object) -> bool:
    last = name.removesuffix(".__get__").rpartition(".")[2]
    return last == _WRITES or last in _READ_BY_PYTHON or next(tensors_of(result, ""), None) is not None


def _shown(value: object) -> str:
    """A value as text; long values and objects with an address appear as their class."""
    if isinstance(value, Tensor):
        return f"{dtype_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, list | tuple):
        inside = ", ".join(map(_shown, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if value is None or isinstance(value, bool | int | float | str | torch.dtype | torch.device | slice):
        return repr(value)[:_MAX_SHOWN]
    return "..." if value is Ellipsis else f"<{type(value).__name__}>"


# --- Facts from the live model, for checks that must not trust the capture ---


def parameter_count(model: nn.Module) -> int:
    """Elements of all parameters, each distinct tensor once."""
    return sum(parameter.numel() for parameter in model.parameters())


def parameter_bytes(model: nn.Module) -> int:
    """Bytes of all parameters, each distinct tensor once."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def state_shapes(model: nn.Module) -> dict[str, tuple[str, str]]:
    """Shape (as 2x3) and element type of every parameter and buffer by path; tied ones at each of their paths."""
    found: dict[str, tuple[str, str]] = {}
    for path, module in model.named_modules():
        for name, tensor in (
            *module.named_parameters(recurse=False, remove_duplicate=False),
            *module.named_buffers(recurse=False, remove_duplicate=False),
        ):
            shape = "x".join(map(str, tensor.shape)) or "scalar"
            found[f"{path}.{name}" if path else name] = (shape, dtype_name(tensor.dtype))
    return found


def module_paths(model: nn.Module) -> tuple[str, ...]:
    """The paths of all modules, each module once."""
    return tuple(path for path, _ in model.named_modules())

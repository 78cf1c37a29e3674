"""Model + inputs -> the torch functions that its code calls, before torch takes them apart into aten ops."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from torchstone.models.inputs import Inputs
from torchstone.numerics.dtypes import dtype_name
from torchstone.record.functions import FunctionUse
from torchstone.reference.running import observe
from torchstone.reference.structure import tensors_of

_READ_BY_PYTHON = ("__bool__", "__int__", "__float__", "__index__", "item", "tolist")  # the values leave torch
_WRITES = "__setitem__"
_LONGEST = 60


def used_functions(model: nn.Module, inputs: Inputs, *, seed: int) -> tuple[FunctionUse, ...]:
    """Run a model once more and list the functions, most called first; what only asks for a size is left out."""
    listener = _Listener()
    with ExitStack() as kept:
        for path, module in model.named_modules():
            before, after = listener.hooks(path)
            kept.callback(module.register_forward_pre_hook(before).remove)
            kept.callback(module.register_forward_hook(after, always_call=True).remove)
        with listener:
            observe(model, inputs, seed=seed)
    return listener.uses()


class _Listener(TorchFunctionMode):
    """Sees each function that Python calls while a module runs, and none that such a function calls itself."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[str] = []
        self.calls: Counter[tuple[str, str, str]] = Counter()
        self.modules: dict[tuple[str, str, str], dict[str, None]] = {}

    def hooks(self, path: str) -> tuple[Callable[..., None], ...]:
        def before(_module: nn.Module, _args: Any) -> None:
            self.running.append(path)

        def after(_module: nn.Module, _args: Any, _output: Any) -> None:
            self.running.pop()

        return before, after

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
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


def _name(func: Callable[..., Any]) -> str:
    """The name that a function has in torch; torch does not tell that of a few of its own."""
    known = resolve_name(func)
    return str(known) if known else f"torch.{getattr(func, '__name__', type(func).__name__)}"


def _counts(name: str, result: Any) -> bool:
    last = name.removesuffix(".__get__").rpartition(".")[2]
    return last == _WRITES or last in _READ_BY_PYTHON or next(tensors_of(result, ""), None) is not None


def _shown(value: Any) -> str:
    """A value in words; what is long or has an address is told by its class."""
    if isinstance(value, Tensor):
        return f"{dtype_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, list | tuple):
        inside = ", ".join(map(_shown, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if value is None or isinstance(value, bool | int | float | str | torch.dtype | torch.device | slice):
        return repr(value)[:_LONGEST]
    return "..." if value is Ellipsis else f"<{type(value).__name__}>"

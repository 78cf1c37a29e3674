"""Prepare a model and its inputs for a run: dtype, lazy modules, whether the inputs match forward(), memory."""

import inspect
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map_only

from torchstone.errors import InputError, ModelError, ModelInputsError, TorchstoneError
from torchstone.foreign import foreign_code, printable
from torchstone.models.inputs import Inputs
from torchstone.record.files import shortened
from torchstone.units import show_bytes

# --- Casting ---


def parse_dtype(name: str | None) -> torch.dtype | None:
    """Convert the name of a floating-point dtype; None stays None."""
    if name is None:
        return None
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if isinstance(dtype, torch.dtype) and dtype.is_floating_point:
        return dtype
    msg = f"the dtype {name!r} is not a floating-point dtype of torch; use float32, bfloat16 or float16"
    raise InputError(msg)


def cast_model(model: nn.Module, dtype: torch.dtype | None) -> None:
    """Cast floating-point parameters and buffers, in place; None leaves them.

    A transformers model with values keeps the tables that it does not save, such as the frequencies of a rotary
    embedding, in the precision they were computed in: so does `from_pretrained(dtype=...)`.
    """
    if dtype is None:
        return
    kept = _computed_tables(model) if _is_from_transformers(model) else []
    model.to(dtype)
    for module, name, table in kept:
        module._buffers[name] = table  # noqa: SLF001 - the same buffer, as it was


def _computed_tables(model: nn.Module) -> list[tuple[nn.Module, str, torch.Tensor]]:
    tables = (
        (module, name, module._buffers.get(name))  # noqa: SLF001 - torch has no other list of them
        for module in model.modules()
        for name in module._non_persistent_buffers_set  # noqa: SLF001 - as above
    )
    return [(module, name, table) for module, name, table in tables if table is not None and not table.is_meta]


def _is_from_transformers(model: nn.Module) -> bool:
    return any(base.__module__ == "transformers.modeling_utils" for base in type(model).__mro__)


def cast_inputs(inputs: Inputs, dtype: torch.dtype | None) -> Inputs:
    """Cast floating-point tensors among the inputs; all others stay, and so does a cache that the model filled."""
    if dtype is None:
        return inputs
    caches = {name: inputs.kwargs[name] for name in inputs.caches}

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return replace(
        inputs,
        args=tree_map_only(torch.Tensor, cast, inputs.args),
        kwargs={**tree_map_only(torch.Tensor, cast, inputs.kwargs), **caches},
    )


# --- Lazy modules: their parameters have no shape before the first run ---


def lazy_tensors(model: nn.Module) -> list[str]:
    """The parameters and buffers of a model that have no shape yet."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    return [name for name, tensor in tensors if is_lazy(tensor)]


def initialize_lazy_parameters(model: nn.Module, inputs: Inputs) -> None:
    """Run a model with lazy modules once, as torch requires; a model without them does not run."""
    lazy = lazy_tensors(model)
    if not lazy:
        return
    with foreign_code(exit_is_answer=True) as ran, torch.no_grad():  # the model's own code may raise anything
        model(*inputs.args, **inputs.kwargs)
    if ran.cause is not None:
        reason = " ".join(str(printable(ran.error or ran.cause)).split())
        msg = f"the first run, which gives {lazy[0]} its shape, raised {type(ran.cause).__name__}: {reason}"
        raise ModelError(msg) from ran.cause
    remaining = lazy_tensors(model)
    if remaining:
        msg = f"{remaining[0]} is lazy and still has no shape after a run; make it a parameter with a shape"
        raise ModelError(msg)


# --- Do the inputs match the signature of forward()? ---


def check_inputs_match(model: nn.Module, inputs: Inputs) -> None:
    """Refuse inputs that do not match the parameters of the model's forward by number or name."""
    if model._forward_pre_hooks:  # noqa: SLF001 - a hook may replace the inputs
        return
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):  # written in C, or compiled: only the call itself can show it
        return
    try:
        signature.bind(*inputs.args, **inputs.kwargs)
    except TypeError as error:
        wanted = ", ".join(signature.parameters) or "nothing"
        msg = (
            f"the inputs ({inputs.origin}) do not match {type(model).__name__}: {error}; its forward takes {wanted}; "
            "pass matching ones with --inputs FILE.py::FN"
        )
        raise ModelInputsError(msg) from error


# --- Memory budget, checked before a model is built with values ---

_MEMORY_INFO = Path("/proc/meminfo")
_FOR_ACTIVATIONS = 1.25  # a run needs more than the weights
_COPIES = 4  # of a large input: a mask of its size, and what is made on the way
_SMALL_BYTES = 1 << 28  # is not worth asking the system for
_SMALLER = "give smaller sizes (--batch-size, --seq-len, --image-size, --cache-len), or your own with --inputs"


def memory_shortage(model: nn.Module) -> str:
    """Why the weights of a model do not fit in free memory; "" when they do, or when free memory is unknown."""
    needed = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    free = free_bytes()
    if free is None or needed * _FOR_ACTIVATIONS <= free:
        return ""
    return f"{show_bytes(needed)} of weights do not fit in {show_bytes(free)} of free memory (try --layers 2)"


def require_room(name: str, shape: Sequence[int], dtype: torch.dtype) -> None:
    """Raise ModelInputsError for an input that does not fit in free memory; what is not free is never asked for."""
    needed = math.prod(max(size, 0) for size in shape) * dtype.itemsize
    free = free_bytes() if needed > _SMALL_BYTES else None
    if free is not None and needed * _COPIES > free:
        sizes = f"{list(shape)!s:.80}"
        msg = f"the input {name} of {sizes} takes {show_bytes(needed)}, and {show_bytes(free)} are free; {_SMALLER}"
        raise ModelInputsError(msg)


def generated(make: Callable[[], Inputs], name: str) -> Inputs:
    """The inputs that a function generates; what torch refuses of the sizes that options or a file ask for is input."""
    with foreign_code(passing=(TorchstoneError, ImportError)) as ran:
        return make()
    kind = type(ran.raised).__name__
    msg = f"the inputs of {name} cannot be generated ({kind}: {shortened(ran.raised)}); {_SMALLER}"
    raise ModelInputsError(msg) from ran.raised


def free_bytes() -> int | None:
    """Memory that is available without swapping; None where the system does not report it."""
    if _MEMORY_INFO.is_file():
        for line in _MEMORY_INFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
